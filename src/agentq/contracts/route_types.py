"""What each route takes and answers, as types: read from the service interface itself.

The parameters of a method are its request, its return type is the answer. Nothing is listed twice:
a call that changes in `contracts.service` changes here, in the OpenAPI document and in the client.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, BinaryIO, NamedTuple

import msgspec

from agentq.contracts import (
    artifacts,
    hook_values,
    number_values,
    overview_values,
    proof_values,
    schedule_values,
    service,
    service_values,
)
from agentq.contracts.routes import BY_CALL, Route
from agentq.contracts.service import Service
from agentq.core import access, errors, limits, task, triggers
from agentq.core.values import is_value_class

_ARTIFACT_NAMES = ("LivePart", "Source", "Stored", "Uploaded", "UploadLink")
#: Names in the annotations of the interface, which it imports for type checkers only.
_NAMES: dict[str, Any] = {
    "Collection": typing.Collection,
    "v": service_values,
    "h": hook_values,
    "n": number_values,
    "o": overview_values,
    "s": schedule_values,
    "InboundMessage": Any,
    "IntakeResult": Any,
    "Seal": proof_values.Seal,
    "Repair": proof_values.Repair,
    "Principal": access.Principal,
    "AgentqError": errors.AgentqError,
    "KeyLimits": limits.KeyLimits,
    "RoleLimits": limits.RoleLimits,
    "Priority": task.Priority,
    "Spec": task.Spec,
    "Task": task.Task,
    "LogEntry": triggers.LogEntry,
    "BinaryIO": BinaryIO,
    **{name: getattr(artifacts, name) for name in _ARTIFACT_NAMES},
}


class StoredFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file in a request: the number of one that comes with it, or one that is stored already."""

    file: int = -1
    stored: artifacts.Stored | None = None


class NamedFile(msgspec.Struct, forbid_unknown_fields=True):
    """The name of an artifact, and the number of the file that comes with the request, or what
    was sent by a link."""

    name: str
    file: int = -1
    uploaded: artifacts.Uploaded | None = None


class Shape(NamedTuple):
    """The request of one route: the parameters of its path, all parameters as one type, and the
    names of those that hold many. `answer` is the method's return type."""

    route: Route
    in_path: tuple[str, ...]
    request: type[msgspec.Struct]
    lists: frozenset[str]
    answer: Any


@cache
def shape_of(call: str) -> Shape:
    """The shape of one call of the service interface."""
    route, method = BY_CALL[call], getattr(Service, call)
    hints = typing.get_type_hints(method, {**vars(service), **_NAMES})
    listed: list[Any] = []
    for name, parameter in inspect.signature(method).parameters.items():
        if name not in ("self", "who", "connection"):
            kind = _plain(call, name, hints[name])
            listed.append((name, kind, *_default(parameter)))
    if call == "list_tasks":
        listed = [(each.name, _filter_type(each), *_field_default(each)) for each in _wanted()]
    if call == "claim":
        listed.append(("wait_seconds", float, 0.0))
    request = msgspec.defstruct(
        f"{_camel(call)}Request", listed, forbid_unknown_fields=True, kw_only=True
    )
    lists = frozenset(name for name, kind, *_ in listed if _is_list(kind))
    in_path = tuple(re.findall(r"{(\w+)(?:\.\.\.)?}", route.path))
    return Shape(route, in_path, request, lists, hints["return"])


def _wanted() -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(service_values.Wanted)


def _filter_type(each: dataclasses.Field[Any]) -> Any:
    """Labels are asked for as `name=value`, the other filters as they are."""
    if each.name == "labels":
        return list[str]
    return typing.get_type_hints(service_values.Wanted)[each.name]


def _field_default(each: dataclasses.Field[Any]) -> tuple[Any, ...]:
    return ([],) if each.name == "labels" else (each.default,)


def _default(parameter: inspect.Parameter) -> tuple[Any, ...]:
    if parameter.default is inspect.Parameter.empty:
        return ()
    return (parameter.default,)


def _plain(call: str, name: str, hint: Any) -> Any:
    """The type of a parameter as JSON can hold it: files travel beside it."""
    if (call, name) == ("complete", "result"):
        return StoredFile | None
    if (call, name) == ("put_artifacts", "files"):
        return list[NamedFile]
    return hint


def _is_list(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    return isinstance(origin, type) and not issubclass(origin, (str, Mapping)) and issubclass(
        origin, typing.Collection
    )  # fmt: skip


def _camel(call: str) -> str:
    return "".join(part.capitalize() for part in call.split("_"))


def unknown_fields(plain: Any, kind: Any, where: str = "") -> list[str]:
    """Fields of plain data that no field of a type takes, by their path."""
    if typing.get_origin(kind) is not None:
        arguments = [each for each in typing.get_args(kind) if each is not Ellipsis]
        if isinstance(plain, list) and arguments:
            return [
                found
                for number, each in enumerate(plain)
                for found in unknown_fields(each, arguments[0], f"{where}[{number}]")
            ]
        if isinstance(plain, dict):
            for each in arguments:
                if is_value_class(each):
                    return unknown_fields(plain, each, where)
        return []
    if not isinstance(plain, dict) or not is_value_class(kind):
        return []
    hints = _hints(typing.cast("type", kind))
    found = [f"{where}.{name}" for name in plain if name not in hints]
    for name, hint in hints.items():
        if name in plain:
            found += unknown_fields(plain[name], hint, f"{where}.{name}")
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
