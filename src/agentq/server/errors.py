"""Errors over HTTP: one shape, and a status for each class."""

from __future__ import annotations

from agentq.contracts.service_values import FilesLeft
from agentq.core import errors
from agentq.core.errors import AgentqError, Invalid, Refused, Unavailable

#: Codes that mean: not you, whatever the state of the task.
_FORBIDDEN = frozenset({"not_permitted", "bad_token"})
#: What was decided on a version of a task that it has no longer.
VERSION_CHANGED = "version_changed"
#: How soon somebody whom the ledger could not serve should ask again.
RETRY_SECONDS = 2


class HttpError(AgentqError):
    """A request that HTTP itself refuses; `status` says how."""

    def __init__(self, status: int, cause: str, remedy: str = "", *, code: str = "invalid") -> None:
        super().__init__(cause, remedy, code=code)
        self.status = status
        # What a command at the far end makes of it: refused, or not served now.
        self.exit_status = {401: Refused, 403: Refused, 421: Refused, 429: Unavailable}.get(
            status, Invalid
        ).exit_status


def too_large(most: int) -> HttpError:
    """A request that is larger than what is taken in one."""
    return HttpError(
        413, f"The request is larger than {most} bytes. Nothing was changed.",
        "Send less at once; long texts and files belong into artifacts.", code="too_large",
    )  # fmt: skip


def status_of(error: AgentqError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, HttpError):
        return error.status
    if isinstance(error, errors.Refused):
        return 403 if error.code in _FORBIDDEN else 409
    if error.code == VERSION_CHANGED:
        return 412
    kinds: tuple[tuple[type[AgentqError], int], ...] = (
        (errors.Invalid, 400),
        (errors.NotFound, 404),
        (errors.Conflict, 409),
        (errors.TimedOut, 408),
        (errors.Unavailable, 503),
    )
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)


def error_plain(error: AgentqError) -> dict[str, object]:
    """An error as every answer gives it; `exit_status` is what a command ends with."""
    plain: dict[str, object] = {
        "code": error.code,
        "message": error.cause,
        "remedy": error.remedy,
        "exit_status": error.exit_status,
    }
    if isinstance(error, FilesLeft):
        plain["deleted"], plain["why"] = error.deleted, error.why
    return plain
