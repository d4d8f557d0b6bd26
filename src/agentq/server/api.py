"""From a request to a call of the service and back, whatever carries the request.

This knows neither sockets nor threads: the ASGI application and the socket of an attempt both hand
it a `Request` and send what it answers. It makes no decision: the token gives the principal, the
service asks the table of access.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

import msgspec

from agentq.contracts.artifacts import Stored
from agentq.contracts.route_types import NamedFile, Shape, StoredFile, shape_of, unknown_fields
from agentq.contracts.routes import JSON_TYPE, LINES_TYPE, PREFIX, ROUTES, Route
from agentq.contracts.service import Service
from agentq.contracts.service_values import ArtifactInfo, Wanted
from agentq.core.access import Principal
from agentq.core.errors import AgentqError, Invalid
from agentq.core.task import Task
from agentq.core.triggers import LogEntry
from agentq.ledger.log_codec import entry_to_plain
from agentq.server.errors import RETRY_SECONDS, HttpError, error_plain, status_of

encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Request:
    """One request. `files` are those that came with it, each open at its beginning."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    files: Sequence[BinaryIO] = ()
    arguments: dict[str, Any] | None = None


@dataclass(slots=True)
class Response:
    """One answer: bytes, an open file, or pieces that come one by one."""

    status: int
    body: bytes | BinaryIO | Iterator[bytes] = b""
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": JSON_TYPE})


class RouteMatch(NamedTuple):
    """The route of a path, and what the path names."""

    route: Route
    values: dict[str, str]


class Api:
    """Answers requests of principals that somebody else has made sure of."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handle(self, who: Principal, request: Request) -> Response:
        """The answer to a request, refusals included."""
        try:
            found = find(request.method, request.path)
            return self.call(who, found, self.arguments(found, request))
        except AgentqError as error:
            return refusal(error)

    def arguments(self, found: RouteMatch, request: Request) -> dict[str, Any]:
        """What the request says, as the parameters of its call."""
        shape = shape_of(found.route.call)
        plain: dict[str, Any] = {}
        if request.arguments is not None:
            plain = request.arguments
        elif found.route.method == "GET":
            plain = _from_query(request.query, shape.lists)
        elif request.body:
            plain = _from_body(request.body)
        # Whoever reads the log of a proxy must not see another task than the one that was meant.
        twice = ", ".join(name for name in found.values if name in plain)
        if twice:
            raise Invalid(f"The path names {twice} already. Nothing was changed.", "Leave it out.")
        strict = found.route.method != "GET"
        return _arguments(shape, {**found.values, **plain}, request.files, strict=strict)

    def call(self, who: Principal, found: RouteMatch, arguments: dict[str, Any]) -> Response:
        call = found.route.call
        arguments.pop("wait_seconds", None)
        method: Callable[..., Any] = getattr(self._service, call)
        result = method(**arguments) if call == "now" else method(who, **arguments)
        shown = _SPECIAL.get(call)
        if shown is not None:
            return shown(result)
        answer = Response(200, encode({"value": result}))
        if isinstance(result, Task):
            answer.headers["etag"] = f'"{result.version}"'
        return answer


def match_version(arguments: dict[str, Any], header: str) -> None:
    """Take the version of a task that `If-Match` names. A condition is never passed over."""
    if "if_version" not in arguments:
        raise HttpError(400, "If-Match means nothing for this call. Nothing was changed.",
                        "Leave it out: reports of an attempt name its epoch.")  # fmt: skip
    quoted = header.strip()
    version = quoted[1:-1] if quoted[:1] == quoted[-1:] == '"' else ""
    if not (version.isascii() and version.isdigit() and 0 < int(version[:18]) == int(version)):
        raise HttpError(
            400, f"If-Match names one version of the task, got {header[:40]!r}.",
            'As in If-Match: "7", which is what ETag said.',
        )  # fmt: skip
    arguments["if_version"] = int(version)


def redirect_to(link: tuple[ArtifactInfo, str]) -> Response:
    """The answer that sends a client to the artifact store; it goes there without its token."""
    info, url = link
    headers = _file_headers(info) | {"location": url, "content-length": "0"}
    return Response(307, b"", headers)


# -- finding the route -----------------------------------------------------------------------------


@cache
def _by_length() -> dict[int, list[tuple[list[str], Route]]]:
    found: dict[int, list[tuple[list[str], Route]]] = {}
    for route in ROUTES:
        parts = route.path.split("/")[1:]
        length = -1 if parts[-1].endswith("...}") else len(parts)
        found.setdefault(length, []).append((parts, route))
    return found


def find(method: str, path: str) -> RouteMatch:
    """The route of a method and path; raises `HttpError` 404 or 405."""
    if not path.startswith(f"{PREFIX}/"):
        raise HttpError(404, f"There is nothing at {path[:200]}.", f"The API is at {PREFIX}/.",
                        code="no_route")  # fmt: skip
    parts = path[len(PREFIX) + 1 :].split("/")
    table = _by_length()
    others = []
    for pattern, route in [*table.get(len(parts), ()), *table.get(-1, ())]:
        values = _matches(pattern, parts)
        if values is None:
            continue
        if route.method == method:
            return RouteMatch(route, values)
        others.append(route.method)
    if others:
        raise HttpError(405, f"{path[:200]} does not take {method[:20]}.",
                        f"It takes {', '.join(sorted(set(others)))}.", code="no_route")  # fmt: skip
    raise HttpError(404, f"There is nothing at {path[:200]}.",
                    f"{PREFIX}/openapi.json lists what there is.", code="no_route")  # fmt: skip


def _matches(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for place, each in enumerate(pattern):
        if each.endswith("...}"):
            rest = "/".join(parts[place:])
            values[each[1:-4]] = unquote(rest)
            return values if rest else None
        if place >= len(parts):
            return None
        if each.startswith("{"):
            values[each[1:-1]] = unquote(parts[place])
        elif each != parts[place]:
            return None
    return values if len(pattern) == len(parts) and all(values.values()) else None


# -- reading a request -----------------------------------------------------------------------------


def _from_query(query: Sequence[tuple[str, str]], lists: frozenset[str]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in query:
        if name in lists:
            plain.setdefault(name, []).append(value)
        elif name in plain:
            raise Invalid(f"{name} was given twice in the query.", "Give it once.")
        else:
            plain[name] = value
    return plain


def _from_body(body: bytes) -> dict[str, Any]:
    try:
        plain = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"The body is not JSON: {error}.", "Send one JSON object.") from error
    if not isinstance(plain, dict):
        raise Invalid(f"The body is {_word(plain)}, not an object.", "Send one JSON object.")
    return plain


def _word(plain: object) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(plain), "a number")


def _arguments(
    shape: Shape, plain: dict[str, Any], files: Sequence[BinaryIO], *, strict: bool
) -> dict[str, Any]:
    try:
        _refuse_unknown(shape, plain)
        # What stands in a path or a query is text, whatever it means.
        hints = _request_hints(shape.request)
        for name in shape.in_path:
            plain[name] = msgspec.convert(plain[name], hints[name], strict=False)
        request = msgspec.convert(plain, shape.request, strict=strict)
    except msgspec.ValidationError as error:
        raise Invalid(f"{error}.", "The OpenAPI document says what each field takes.") from error
    arguments = {name: getattr(request, name) for name in request.__struct_fields__}
    if shape.route.call == "list_tasks":
        return {"wanted": _wanted(arguments)}
    if shape.route.files:
        _attach(arguments, files)
    return arguments


def _refuse_unknown(shape: Shape, plain: Mapping[str, Any]) -> None:
    hints = _request_hints(shape.request)
    unknown = [name for name in plain if name not in hints]
    for name, hint in hints.items():
        if name in plain:
            unknown += unknown_fields(plain[name], hint, name)
    if unknown:
        raise Invalid(
            f"Unknown fields: {', '.join(unknown[:10])}. Nothing was changed.",
            f"Known here: {', '.join(hints) or 'none'}.",
            code="unknown_field",
        )


@cache
def _request_hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _wanted(arguments: dict[str, Any]) -> Wanted:
    labels = []
    for text in arguments.pop("labels"):
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Invalid(f"A label is asked for as name=value, got {text[:80]!r}.")
        labels.append((name, value))
    return Wanted(labels=tuple(labels), **arguments)


def _attach(arguments: dict[str, Any], files: Sequence[BinaryIO]) -> None:
    """Put the files that came with a request in the place of their numbers."""
    if "files" in arguments:
        listed: list[NamedFile] = arguments["files"]
        arguments["files"] = [
            (each.name, each.uploaded or _file(files, each.file)) for each in listed
        ]
    result: StoredFile | None = arguments.get("result")
    if result is not None:
        arguments["result"] = result.stored or _file(files, result.file)


def _file(files: Sequence[BinaryIO], number: int) -> BinaryIO:
    if not 0 <= number < len(files):
        raise Invalid(f"The request names file {number}, and brings {len(files)}.")
    return files[number]


# -- showing what came of it -----------------------------------------------------------------------


def refusal(error: AgentqError) -> Response:
    """The answer that an error makes."""
    answer = Response(status_of(error), encode({"error": error_plain(error)}))
    if answer.status in (429, 503):
        answer.headers["retry-after"] = str(RETRY_SECONDS)
    return answer


def _entries(entries: Sequence[LogEntry]) -> Response:
    return Response(200, encode({"value": [entry_to_plain(each) for each in entries]}))


def _replayed(found: Any) -> Response:
    steps = [{"event": entry_to_plain(entry), "task": task} for entry, task in found.steps]
    value = {"task": found.task, "steps": steps, "problems": found.problems}
    return Response(200, encode({"value": value}))


def _outcome(outcome: Task | AgentqError) -> dict[str, object]:
    if isinstance(outcome, AgentqError):
        return {"error": error_plain(outcome)}
    return {"task": outcome}


def _outcomes(outcomes: Sequence[Task | AgentqError]) -> Response:
    return Response(200, encode({"value": [_outcome(each) for each in outcomes]}))


def _outcomes_and_claims(both: tuple[Sequence[Task | AgentqError], Sequence[Task]]) -> Response:
    outcomes, taken = both
    value = {"outcomes": [_outcome(each) for each in outcomes], "taken": taken}
    return Response(200, encode({"value": value}))


def _task_files(found: tuple[Sequence[tuple[Task, Sequence[ArtifactInfo]]], int]) -> Response:
    tasks = [{"task": task, "artifacts": artifacts} for task, artifacts in found[0]]
    return Response(200, encode({"value": {"tasks": tasks, "after": found[1]}}))


def _lines(found: Iterator[tuple[int, list[Any]]]) -> Response:
    def pieces() -> Iterator[bytes]:
        for looked_at, problems in found:
            yield encode({"looked_at": looked_at, "problems": problems}) + b"\n"

    return Response(200, pieces(), {"content-type": LINES_TYPE})


#: What agents wrote is saved by a browser, and never shown as a page of this server.
_RAW = {"content-type": "application/octet-stream", "content-disposition": "attachment"}


def _text(text: str) -> Response:
    headers = {"content-type": "text/markdown; charset=utf-8", "content-disposition": "attachment"}
    return Response(200, text.encode("utf-8", "surrogateescape"), headers)


def _artifact(found: tuple[Task, ArtifactInfo, BinaryIO]) -> Response:
    _, info, file = found
    return Response(200, file, _file_headers(info))


def _result(found: tuple[Task, BinaryIO | None]) -> Response:
    task, file = found
    report = task.details.report
    if file is None or report is None:
        return Response(204, b"", {})
    return Response(200, file, {**_RAW, "agentq-sha256": report.result_sha256})


def _file_headers(info: ArtifactInfo) -> dict[str, str]:
    return {
        **_RAW,
        "content-length": str(info.size),
        "agentq-artifact": encode(info).decode("ascii", "backslashreplace"),
        "agentq-sha256": info.sha256,
    }


def _stored(found: Sequence[Stored]) -> Response:
    return Response(201, encode({"value": found}))


def _created(made: object) -> Response:
    return Response(201, encode({"value": made}))


#: Answers that are more than one plain value.
_SPECIAL: dict[str, Callable[[Any], Response]] = {
    "history": _entries,
    "events_after": _entries,
    "replay": _replayed,
    "complete_many": _outcomes,
    "complete_and_claim": _outcomes_and_claims,
    "task_files": _task_files,
    "verify": _lines,
    "context": _text,
    "open_artifact": _artifact,
    "open_result": _result,
    "put_artifacts": _stored,
    "submit": _created,
    "create_token": _created,
}
