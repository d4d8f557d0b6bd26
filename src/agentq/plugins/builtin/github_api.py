"""GitHub's REST API, as far as boards and pull requests need it.

Runs in the process of a plugin, which is killed if a request hangs. Redirects are not followed with
the token: a request goes to the address of the settings and nowhere else.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import msgspec

from agentq.core.errors import Invalid, Refused, Unavailable

API = "https://api.github.com"
_VERSION = "2022-11-28"
_TIMEOUT_SECONDS = 25.0
_ANSWER_BYTES_MAX = 16 << 20
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
#: No board has more cards, and no commit more checks.
_PAGES_MAX = 20


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Says what GitHub answered, instead of going there."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        return None


class GithubApi:
    """One repository, by its REST API."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.repo = str(options.get("repo", ""))
        self._token = str(options.get("token", ""))
        self._api = str(options.get("api") or API).rstrip("/")
        if not _REPO.fullmatch(self.repo):
            raise Invalid(f"repo is OWNER/NAME, got {self.repo[:80]!r}.", 'As in "ann/shop".')
        if not self._api.startswith(("https://", "http://")):
            raise Invalid(f"api is the address of GitHub's API, got {self._api[:80]!r}.")
        if not self._token or not self._token.isprintable():
            raise Invalid("A token for GitHub is needed.", 'As in token = "env:GITHUB_TOKEN".')
        self._opener = urllib.request.build_opener(_NoRedirects)

    @property
    def owner(self) -> str:
        return self.repo.partition("/")[0]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request below the repository; the answer as plain values."""
        return self._request(method, f"{self._api}/repos/{self.repo}{path}", body)[0]

    def pages(self, path: str, key: str = "") -> list[Any]:
        """All pages of a list; with `key`, lists that stand under that name in each page."""
        found: list[Any] = []
        url = f"{self._api}/repos/{self.repo}{path}"
        for _ in range(_PAGES_MAX):
            page, link = self._request("GET", url)
            found += page[key] if key else page
            following = _NEXT.search(link)
            if following is None or not following[1].startswith(f"{self._api}/"):
                break
            url = following[1]
        return found

    def _request(self, method: str, url: str, body: Any = None) -> tuple[Any, str]:
        request = urllib.request.Request(  # noqa: S310 - http or https, see above
            url,
            method=method,
            data=None if body is None else msgspec.json.encode(body),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "User-Agent": "agentq",
                "X-GitHub-Api-Version": _VERSION,
            },
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                data = answer.read(_ANSWER_BYTES_MAX)
                return msgspec.json.decode(data) if data else None, answer.headers.get("Link", "")
        except urllib.error.HTTPError as error:
            raise _refused(error, method, urllib.parse.urlsplit(url).path) from error
        except (OSError, msgspec.DecodeError) as error:
            raise Unavailable(f"GitHub cannot be asked at {self._api}: {error}.") from error


def _refused(error: urllib.error.HTTPError, method: str, path: str) -> Unavailable | Refused:
    with error:
        data = error.read(65536)
    try:
        said = msgspec.json.decode(data)
        words = [str(said.get("message", ""))]
        words += [str(each.get("message", each)) if isinstance(each, dict) else str(each)
                  for each in said.get("errors", ())]  # fmt: skip
        text = "; ".join(each for each in words if each)
    except (msgspec.DecodeError, AttributeError, TypeError):
        text = data[:200].decode("utf-8", "replace")
    cause = f"GitHub answered {method} {path} with {error.code}: {text}."
    # What was asked for cannot be done; all else may be different the next time.
    return Refused(cause) if error.code == 422 else Unavailable(cause)
