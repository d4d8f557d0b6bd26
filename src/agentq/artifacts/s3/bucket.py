"""One place in an object store: the few verbs we need of it, each bounded in time and memory.

Every request has a time limit, and a bounded number of tries within a bounded time. Nothing is ever
held whole in memory that is larger than `STEP_BYTES`: what is larger is sent in parts and fetched
in ranges, so each request stays small and a broken one costs little.

Errors are the library's; whoever calls knows what it was about and says so (`store_errors`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from agentq.artifacts.s3.errors import is_missing_bucket
from agentq.core.errors import Invalid

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Store

#: How much is sent or fetched by one request, and held in memory at once for each.
STEP_BYTES = 8 << 20
#: What even a slow line carries within the time of a quick request.
_SMALL_BYTES = 1 << 18
_PARTS_AT_ONCE = 4
#: How many objects one request names.
_BATCH = 1000
#: A server that has gone mad cannot keep us listing.
_ENTRIES_MAX = 5_000_000

#: S3 is what our suite proves; the others speak the same verbs, and `probe` finds out what counts.
_SCHEMES = ("s3", "gs", "az")

#: Shown in a browser by a signed link, evidence must not run as a page of the store's host.
_DISPOSITION = "attachment"
#: What a browser would run or render as a page; it is served as bytes, whoever drops the above.
_RUNS = {"text/html", "image/svg+xml", "application/xml", "text/javascript", "text/css"}
#: S3's own word for "just bytes". Some stores take the usual one for "unknown", and guess.
_BYTES_TYPE = "binary/octet-stream"

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")

#: For requests that carry little: a server that accepts and then says nothing is given up soon.
_QUICK_SECONDS = 20
#: For a step of data over a slow line.
_BULK_SECONDS = 120
_RETRIES: RetryConfig = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=3),
        "base": 2,
    },
}


class ListedObject(NamedTuple):
    key: str
    size: int
    modified_ms: int

    def is_older(self, before_ms: int) -> bool:
        """Whether it was surely written before then: stores give the time in whole seconds."""
        return self.modified_ms + 1000 <= before_ms


class Found(NamedTuple):
    """An object found in the bucket; `tag` changes when its content does."""

    key: str
    size: int
    tag: str | None
    #: Its content, if it is small enough to have come along.
    content: bytes | None


class Bucket:
    """The objects below `root_url`, like `s3://bucket/prefix`. Keys are relative to it."""

    def __init__(self, root_url: str, options: Mapping[str, str]) -> None:
        self.url = _checked_root(root_url)
        self._quick = _opened(self.url, options, _QUICK_SECONDS)
        self._bulk = _opened(self.url, options, _BULK_SECONDS)
        self._options = options
        self._copying: ObjectStore | None = None

    # ---- writing --------------------------------------------------------------------------------

    def create(self, key: str, data: bytes, media_type: str = "") -> bool:
        """Write a small object unless something has its key; returns whether it was written."""
        try:
            obstore.put(
                self._quick if len(data) <= _SMALL_BYTES else self._bulk,
                key,
                data,
                mode="create",
                attributes=_attributes(media_type),
            )
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def replace(self, key: str, data: bytes) -> None:
        """Write a small object, whatever was there. Only for what is no evidence."""
        obstore.put(self._quick, key, data, use_multipart=False)

    def upload(self, key: str, chunks: Iterator[bytes], media_type: str) -> None:
        """Write an object of any size, in parts, to a key that nobody else knows.

        What breaks off leaves no object. (Parts that were sent are kept by the store until its
        own rules remove them; nobody sees them, and the library has no verb to list them.)
        """
        obstore.put(
            self._bulk,
            key,
            chunks,
            attributes=_attributes(media_type),
            chunk_size=STEP_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )

    def copy_unless_taken(self, source: str, target: str) -> bool:
        """Give an object a second key unless something has that; returns whether it was given.

        How the copy is served is as harmless as the object was.
        """
        try:
            obstore.copy(self._copier(), source, target, overwrite=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def _copier(self) -> ObjectStore:
        """Where copies are made through.

        Elsewhere a copy keeps the attributes. On S3 it is an upload of its own, because only
        uploads can be told not to overwrite; the library gives it no attributes, but it sends the
        headers that belong to the client.
        """
        if not self.url.startswith("s3:"):
            return self._bulk
        if self._copying is None:
            served: ClientConfig = {
                "default_content_type": _BYTES_TYPE,
                "default_headers": {"content-disposition": _DISPOSITION},
            }
            self._copying = _opened(self.url, self._options, _BULK_SECONDS, served)
        return self._copying

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are fine."""
        wanted = list(keys)
        for start in range(0, len(wanted), _BATCH):
            batch = wanted[start : start + _BATCH]
            with suppress(FileNotFoundError):  # S3 does not mind, others say so
                # One by its own verb: not every store has the other.
                obstore.delete(self._quick, batch if len(batch) > 1 else batch[0])

    # ---- reading --------------------------------------------------------------------------------

    def find(self, key: str) -> Found | None:
        """Look for an object; a small one brings its content along. None if it is not there."""
        try:
            answer = obstore.get(self._quick, key)
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise
            return None
        size, tag = answer.meta["size"], answer.meta["e_tag"]
        content = None
        if size <= _SMALL_BYTES:
            content = bytes(answer.bytes())
        elif size <= STEP_BYTES:
            content = self._range(key, 0, size, tag)
        return Found(key, size, tag, content)

    def chunks(self, found: Found) -> Iterator[bytes]:
        """Yield the content, a step at a time; an object replaced meanwhile is an error."""
        if found.content is not None:
            yield found.content
            return
        for start in range(0, found.size, STEP_BYTES):
            end = min(start + STEP_BYTES, found.size)
            yield self._range(found.key, start, end, found.tag)

    def part(self, key: str, start: int, end: int) -> bytes | None:
        """Return a range of an object, at most a few steps; None if it is not there any more."""
        try:
            return self._range(key, start, end, None)
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise
            return None

    def _range(self, key: str, start: int, end: int, tag: str | None) -> bytes:
        options: Any = {"range": (start, end)}
        if tag is not None:
            options["if_match"] = tag
        return bytes(obstore.get(self._bulk, key, options=options).bytes())

    def entries(self, folder: str, most: int = _ENTRIES_MAX) -> Iterator[ListedObject]:
        """Yield what is below a folder, in no order."""
        count = 0
        for batch in obstore.list(self._quick, folder, chunk_size=_BATCH):
            count += len(batch)
            if count > most:
                raise ValueError("a listing without end")
            for meta in batch:
                at_ms = int(meta["last_modified"].timestamp() * 1000)
                yield ListedObject(meta["path"], meta["size"], at_ms)

    def signed(self, key: str, seconds: int, method: Literal["GET", "PUT"] = "GET") -> str:
        """Return a link that reads or writes the object for so long, with our rights."""
        return obstore.sign(cast("S3Store", self._quick), method, key, timedelta(seconds=seconds))


def _attributes(media_type: str) -> Any:
    """How an object is served to whoever has a link to it."""
    if not media_type:  # nobody gets one to what has no type
        return None
    served = _BYTES_TYPE if media_type in _RUNS else media_type
    return {"Content-Type": served, "Content-Disposition": _DISPOSITION}


def _checked_root(root_url: str) -> str:
    try:
        split = urlsplit(root_url)
    except ValueError:
        split = urlsplit(f"{root_url.partition('://')[0][:20]}://")  # as in s3://[
    prefix = split.path.strip("/")
    usable = (
        split.scheme in _SCHEMES
        and _BUCKET.fullmatch(split.netloc)
        and not split.query
        and not split.fragment
        and (not prefix or (_PREFIX.fullmatch(prefix) and "//" not in prefix))
        and not any(part in {".", ".."} for part in prefix.split("/"))
    )
    if not usable:
        # Only the scheme is repeated: somebody may have put a password into the rest.
        raise Invalid(
            "The address of an object store is s3://bucket or s3://bucket/prefix, with letters,"
            f" digits, '.', '_' and '-' only; got something else of the kind"
            f" {split.scheme[:20]!a}.",
            "Credentials go into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not into it.",
        )
    return f"{split.scheme}://{split.netloc}/{prefix}".rstrip("/")


def _opened(
    url: str, options: Mapping[str, str], seconds: int, more: ClientConfig | None = None
) -> ObjectStore:
    endpoint = options.get("endpoint", "")
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=5),
        "timeout": timedelta(seconds=seconds),
        **(more or {}),
    }
    if endpoint.startswith("http://"):  # else the environment may allow it
        client["allow_http"] = True
    config: dict[str, str] = {}
    if url.startswith("s3:"):
        # Without it S3 would overwrite on copying; see `copy_unless_taken`.
        config["copy_if_not_exists"] = "multipart"
        config |= {name: value for name, value in options.items() if value}
    try:
        _check_endpoint(endpoint)
        opened = from_url(
            url, config=cast("Any", config), client_options=client, retry_config=_RETRIES
        )
    except (BaseError, ValueError):
        raise Invalid(
            f"The object store {url} cannot be used with these settings.",
            "`endpoint` is like https://host:port, `region` like eu-central-1.",
        ) from None
    return opened


def _check_endpoint(endpoint: str) -> None:
    if not endpoint:
        return
    split = urlsplit(endpoint)
    if split.scheme not in ("http", "https") or not split.hostname or "@" in split.netloc:
        raise ValueError(endpoint)
