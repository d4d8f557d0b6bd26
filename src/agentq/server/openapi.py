"""The OpenAPI document, drawn from the route table and the types of the service interface.

Descriptions are the docstrings of the interface: whoever changes a call changes its documentation.
docs/reference/openapi.json is this document; a test compares them.
"""

from __future__ import annotations

import inspect
import re
import typing
from functools import cache
from typing import Any

import msgspec

from agentq import __version__
from agentq.contracts.artifacts import Stored
from agentq.contracts.route_types import Shape, shape_of
from agentq.contracts.routes import (
    CSRF_HEADER,
    EVENT_STREAM_TYPE,
    FILES_TYPE,
    JSON_TYPE,
    LINES_TYPE,
    PREFIX,
    ROUTES,
    SECTIONS,
    Route,
)
from agentq.contracts.service import Service
from agentq.core.task import Task

_REFERENCE = "#/components/schemas/{name}"

_FILE: dict[str, Any] = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}

_ERRORS = {
    "400": "The request is malformed or out of bounds. Nothing was changed.",
    "401": "No token, or none that the server knows.",
    "403": "This principal may not do that; or a browser asks from another site, or without the"
    " CSRF token of its session.",
    "404": "No such task, artifact or route.",
    "408": "The rest of the request did not come in time.",
    "409": "The task's state, a gate or a rule does not allow it; or the attempt is stale; or the"
    " `Idempotency-Key` stands for another request.",
    "412": "The task has changed since the version that `If-Match` names. Nothing was changed.",
    "413": "The request is too large.",
    "416": "The file has no such part.",
    "421": "The server is not asked under this name.",
    "429": "The server has too much to do: come again after `Retry-After`.",
    "500": "Stored evidence is damaged, or the server failed.",
    "503": "The ledger cannot serve now: come again after `Retry-After`.",
}

_IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The version of the task that was looked at, as `ETag` gave it; the same as"
    " `if_version`.",
    "schema": {"type": "string", "pattern": '^"[1-9][0-9]{0,15}"$'},
    "example": '"7"',
}

_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A name that this request alone has. Sent again under it, when no answer came, a"
    " request acts once, and is answered as it was; another request under it is refused.",
    "schema": {"type": "string", "pattern": "^[0-9A-Za-z_-]{1,200}$"},
    "example": "5f0c2a7e-push-4711",
}

_NO_CONTENT = {
    "open_result": "The task gave only its summary.",
    "live_read": "Asked for as a stream: the attempt is over, its log stands among the artifacts.",
}

_SECURITY_SCHEMES: dict[str, Any] = {
    "token": {"type": "http", "scheme": "bearer"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "agentq-session-8765",
        "description": "The session of a browser that has logged in at `/login`; the number is the"
        " port, and over TLS `__Host-` stands before it. Only for pages of this server, as `Origin`"
        " and `Sec-Fetch-Site` tell. A request that brings a Bearer token is judged by that alone.",
    },
    "csrf": {
        "type": "apiKey",
        "in": "header",
        "name": CSRF_HEADER,
        "description": "The `csrf_token` of `GET /session`; what changes something needs it beside"
        " the cookie.",
    },
}

#: An example body for the calls that a newcomer tries first.
_EXAMPLES: dict[str, dict[str, Any]] = {
    "submit": {
        "specs": [
            {
                "id": "task-7",
                "to": "implementation-worker",
                "title": "Mend the login page",
                "instructions": "The login page loses the name on a wrong password. Keep it.",
            }
        ]
    },
    "claim": {"role": "implementation-worker", "count": 1, "holder": "laptop:4711",
              "wait_seconds": 5},
    "renew": {"leases": [{"task_id": "task-7", "epoch": 1, "lease_ms": 60000}]},
    "progress": {"percent": 40, "note": "the test is written"},
    "complete": {"summary": "The name stays; tests/test_login.py shows it."},
    "fail": {"reason": "the repository cannot be reached", "kind": "transient"},
    "approve": {"digest": ""},
    "reject": {"reason": "not this week"},
    "answer": {"text": "Use the staging database."},
    "cancel": {"reason": "no longer needed"},
    "comment": {"text": "See also task-3."},
    "tell": {"message": "Leave the old login page as it is."},
}  # fmt: skip


_PATH_EXAMPLES: dict[str, Any] = {
    "ref": "task-7", "task_id": "task-7", "epoch": 1, "name": "report.md",
    "role": "implementation-worker", "provider": "anthropic",
}  # fmt: skip


@cache
def document_bytes() -> bytes:
    """The document as the server sends it."""
    return msgspec.json.format(msgspec.json.encode(document(), order="sorted"), indent=2)


def document() -> dict[str, Any]:
    """The whole document."""
    shapes = [shape_of(route.call) for route in ROUTES]
    types = [kind for kind in (_answer_type(shape) for shape in shapes) if kind is not None]
    parts = [_field_types(shape) for shape in shapes]
    described = [*types, *(kind for part in parts for kind in part.values())]
    schemas, components = msgspec.json.schema_components(described, ref_template=_REFERENCE)
    answers = iter(schemas[: len(types)])
    fields = iter(schemas[len(types) :])
    components |= _own_components()
    paths: dict[str, dict[str, Any]] = {}
    for shape, part in zip(shapes, parts, strict=True):
        named = {name: next(fields) for name in part}
        answer = next(answers) if _answer_type(shape) is not None else None
        path = PREFIX + re.sub(r"\.\.\.}", "}", shape.route.path)
        paths.setdefault(path, {})[shape.route.method.lower()] = _operation(shape, named, answer)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agentq",
            "version": __version__,
            "description": "A durable work queue for AI agents whose tasks take minutes to hours."
            " Every call is one of the service interface; the token says who asks, and the table of"
            " access whether they may.",
        },
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": _error_responses(),
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _own_components() -> dict[str, Any]:
    texts = {name: {"type": "string"} for name in ("code", "message", "remedy")}
    entry = {
        "position": {"type": "integer"}, "task_id": {"type": "string"},
        "version": {"type": "integer"}, "at": {"type": "integer"}, "kind": {"type": "string"},
        "trigger": {"type": "string"}, "state": {"type": "string"}, "epoch": {"type": "integer"},
        "data": {"type": "object"}, "spec": {"$ref": _REFERENCE.format(name="Spec")},
    }  # fmt: skip
    return {
        "Error": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["code", "message", "remedy", "exit_status"],
                    "properties": {**texts, "exit_status": {"type": "integer"}},
                }
            },
        },
        "Event": {
            "type": "object",
            "description": "One line of the log. `at` counts milliseconds; `data` is what its"
            " trigger carried, and `spec` stands with the event of a submission.",
            "required": [name for name in entry if name != "spec"],
            "properties": entry,
        },
        "Outcome": {
            "type": "object",
            "description": "The task, or why its report was refused.",
            "properties": {
                "task": {"$ref": _REFERENCE.format(name="Task")},
                "error": {"$ref": _REFERENCE.format(name="Error") + "/properties/error"},
            },
        },
    }


def _answer_type(shape: Shape) -> Any:
    """The type that a JSON answer has, for schemas; None where it is described by hand."""
    special: dict[str, Any] = {"put_artifacts": list[Stored], "replay": None, "task_files": None}
    if shape.route.streams:
        return None
    if shape.route.call in special:
        return special[shape.route.call]
    if "AgentqError" in str(shape.answer) or "LogEntry" in str(shape.answer):
        return None
    return shape.answer if shape.answer is not type(None) else None


def _field_types(shape: Shape) -> dict[str, Any]:
    return typing.get_type_hints(shape.request)


def _operation(shape: Shape, fields: dict[str, Any], answer: Any) -> dict[str, Any]:
    route = shape.route
    summary, description = _words(route.call)
    operation: dict[str, Any] = {
        "operationId": route.call,
        "tags": [_section(route)],
        "summary": summary,
        "parameters": [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": fields[name],
                "example": _PATH_EXAMPLES.get(name, "worker"),
            }
            for name in shape.in_path
        ],
        "responses": _responses(shape, answer),
    }
    if description:
        operation["description"] = description
    if _takes_version(shape):
        operation["parameters"].append(_IF_MATCH)
    if route.method != "GET":
        operation["parameters"].append(_KEY)
        operation["security"] = [{"token": []}, {"session": [], "csrf": []}]
    defaults = _defaults(shape.request)
    rest = {name: _with_default(fields[name], defaults.get(name, ...)) for name in fields
            if name not in shape.in_path}  # fmt: skip
    required = [name for name in rest if name not in defaults]
    if route.method == "GET":
        operation["parameters"] += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in rest.items()
        ]
    elif rest:
        operation["requestBody"] = _request_body(route, rest, required)
    return operation


def _takes_version(shape: Shape) -> bool:
    return "if_version" in shape.request.__struct_fields__


def _with_default(schema: Any, default: Any) -> Any:
    if default is ... or not isinstance(default, (str, int, float, bool)):
        return schema
    return {**schema, "default": default}


def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        each.name: each.default
        for each in msgspec.structs.fields(kind)
        if each.default is not msgspec.NODEFAULT or each.default_factory is not msgspec.NODEFAULT
    }


def _request_body(route: Route, fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }
    content: dict[str, Any] = {JSON_TYPE: {"schema": schema}}
    if route.call in _EXAMPLES:
        content[JSON_TYPE]["example"] = _EXAMPLES[route.call]
    if route.files:
        content[FILES_TYPE] = {
            "schema": {"type": "string", "format": "binary"},
        }
    body: dict[str, Any] = {"required": bool(required), "content": content}
    if route.files:
        body["description"] = (
            'With files, send one line of JSON, `{"arguments": {…}, "sizes": [bytes of each'
            " file]}`, then the bytes of the files in their order. `arguments` is the JSON body;"
            " files are named there by their number, from 0."
        )
    return body


def _responses(shape: Shape, answer: Any) -> dict[str, Any]:
    route = shape.route
    status = "201" if route.call in ("submit", "put_artifacts") else "200"
    done = {"description": "Done.", "content": _content(shape, answer)}
    responses: dict[str, Any] = {status: done}
    if route.streams == "file":
        responses["206"] = {"description": "The part that `Range` asked for.", "content": _FILE}
        responses["416"] = {"$ref": "#/components/responses/Error416"}
    if route.call in _NO_CONTENT:
        responses["204"] = {"description": _NO_CONTENT[route.call]}
    if _takes_version(shape):
        responses["412"] = {"$ref": "#/components/responses/Error412"}
    if shape.answer is Task:
        done["headers"] = {"ETag": {"description": "The version of the task, in quotes.",
                                    "schema": {"type": "string"}}}  # fmt: skip
    for code in _ERRORS.keys() - {"412", "416"}:
        responses[code] = {"$ref": f"#/components/responses/Error{code}"}
    return responses


def _error_responses() -> dict[str, Any]:
    content = {JSON_TYPE: {"schema": {"$ref": _REFERENCE.format(name="Error")}}}
    return {
        f"Error{code}": {"description": words, "content": content}
        for code, words in _ERRORS.items()
    }


def _content(shape: Shape, answer: Any) -> dict[str, Any]:
    call, streams = shape.route.call, shape.route.streams
    if streams == "file":
        return _FILE
    if streams == LINES_TYPE:
        return {LINES_TYPE: {"schema": {"type": "string"}}}
    if streams:
        return {"text/markdown": {"schema": {"type": "string"}}}
    event = {"$ref": _REFERENCE.format(name="Event")}
    outcome = {"$ref": _REFERENCE.format(name="Outcome")}
    task = {"$ref": _REFERENCE.format(name="Task")}
    step = {"type": "object", "properties": {"event": event, "task": task}}
    files = {
        "task": task,
        "artifacts": {"type": "array", "items": {"$ref": _REFERENCE.format(name="ArtifactInfo")}},
    }
    by_hand: dict[str, Any] = {
        "task_files": {
            "type": "object",
            "properties": {
                "tasks": {"type": "array", "items": {"type": "object", "properties": files}},
                "after": {"type": "integer"},
            },
        },
        "history": {"type": "array", "items": event},
        "events_after": {"type": "array", "items": event},
        "complete_many": {"type": "array", "items": outcome},
        "complete_and_claim": {
            "type": "object",
            "properties": {
                "outcomes": {"type": "array", "items": outcome},
                "taken": {"type": "array", "items": task},
            },
        },
        "replay": {
            "type": "object",
            "properties": {
                "task": task,
                "steps": {"type": "array", "items": step},
                "problems": {"type": "array"},
            },
        },
    }
    value = by_hand.get(call, answer if answer is not None else {"type": "null"})
    schema = {"type": "object", "required": ["value"], "properties": {"value": value}}
    content = {JSON_TYPE: {"schema": schema}}
    if call in ("events_after", "live_read"):
        content[EVENT_STREAM_TYPE] = {"schema": {"type": "string"}}
    return content


def _section(route: Route) -> str:
    return next(name for name, routes in SECTIONS.items() if route in routes)


def _words(call: str) -> tuple[str, str]:
    text = inspect.getdoc(getattr(Service, call)) or call.replace("_", " ").capitalize() + "."
    summary, _, rest = text.partition("\n\n")
    return " ".join(summary.split()), " ".join(rest.split())
