"""The errors that agentq raises on purpose, each with cause and remedy.

Every error a user can meet is one of these. `cause` says what was expected, what came and what
follows; `remedy` says what to do next; `code` is a stable word for programs. The class decides
blame, and through it the exit status of a command (see `exit_status`).
"""

from __future__ import annotations


class AgentqError(Exception):
    """Base of everything agentq raises on purpose."""

    code = "error"
    exit_status = 1

    def __init__(self, cause: str, remedy: str = "", *, code: str | None = None) -> None:
        self.cause = cause
        self.remedy = remedy
        if code is not None:
            self.code = code
        super().__init__(f"{cause} {remedy}".strip())

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process boundaries; keyword-only arguments need help to do so.
        return (_rebuild, (type(self), self.cause, self.remedy, self.code))


def _rebuild(kind: type[AgentqError], cause: str, remedy: str, code: str) -> AgentqError:
    return kind(cause, remedy, code=code)


class Invalid(AgentqError):
    """The request is malformed or out of bounds. Nothing was changed."""

    code = "invalid"
    exit_status = 2


class NotFound(AgentqError):
    """No such task, artifact, or installation."""

    code = "not_found"
    exit_status = 3


class Refused(AgentqError):
    """A well-formed request that the task's state, its gates or a rule do not allow."""

    code = "refused"
    exit_status = 4


class Stale(Refused):
    """The attempt that asks no longer holds the task: it was fenced out."""

    code = "stale"


class Conflict(AgentqError):
    """The same name already stands for something else."""

    code = "conflict"
    exit_status = 5


class TimedOut(AgentqError):
    """The wait ended before the thing waited for happened."""

    code = "timed_out"
    exit_status = 6


class Unavailable(AgentqError):
    """The database, disk or server cannot serve now. Nothing was acknowledged."""

    code = "unavailable"
    exit_status = 7


class Damaged(AgentqError):
    """Evidence is missing or altered, or the log does not give the stored state."""

    code = "damaged"
    exit_status = 8
