"""What a worker offers to the agent of one attempt, whatever carries the requests.

The socket and the mailbox of an attempt both bring their requests here. The agent asks as its
attempt and as nobody else: who it is comes from the worker, never from the request. Of the route
table it gets the verbs of an attempt; the table of access judges each of them.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import closing
from urllib.parse import parse_qsl

from agentq.contracts.doorbell import EVENTS_TOPIC, Doorbell
from agentq.contracts.routes import ATTEMPT_CALLS, PREFIX, WAKEUPS_PATH
from agentq.contracts.service import Service
from agentq.core.access import ATTEMPT_TOKEN_PREFIX, Principal, RequestKey, key_reused
from agentq.core.errors import AgentqError, Refused, Stale
from agentq.core.values import replace
from agentq.server.api import Api, Request, Response, RouteMatch, encode, find, refusal
from agentq.server.errors import HttpError
from agentq.server.request_key import request_key

log = logging.getLogger("agentq.attempt")

_HOST = os.uname().nodename
#: Answers kept for requests that are sent again because their answer was lost.
_KEPT_MAX = 64
_KEPT_BYTES_MAX = 1 << 20
#: Calls by which an agent ends its own attempt.
_REPORTS = frozenset({"complete", "fail", "block", "release", "yield_attempt"})
#: A request that waits for a change is answered after so long at the latest; the agent then looks
#: for itself, so that a change between two such requests is seen all the same.
_WAIT_SECONDS_MAX = 2.0


class AttemptApi:
    """Answers the agent of one attempt until the attempt ends. Safe for several threads."""

    def __init__(
        self,
        service: Service,
        doorbell: Doorbell,
        who: Principal,
        before_report: Callable[[], None] | None = None,
    ) -> None:
        """`before_report` is called before a report, after which nobody can add to the attempt."""
        self._before_report = before_report
        self._api = Api(service)
        self._service = service
        self._doorbell = doorbell
        self._who = who
        self._acting = threading.Lock()
        #: By key, with the digest of what was asked under it.
        self._kept: OrderedDict[str, tuple[str, Response]] = OrderedDict()
        self._ended = False
        #: What the agent shows with each request over the socket.
        self.token = ATTEMPT_TOKEN_PREFIX + secrets.token_urlsafe(32)

    def end(self) -> None:
        """Refuse whatever comes from now on: the attempt is over, and its token with it."""
        self._ended = True

    def check_token(self, header: str, origin: str = "socket") -> None:
        """Raise unless an `Authorization` header shows the token of this attempt."""
        kind, _, token = header.partition(" ")
        shown = token.strip().encode("utf-8", "surrogateescape")
        good = hmac.compare_digest(shown, self.token.encode())
        if kind.lower() != "bearer" or not good:
            log.warning("%s: a request without the token of its attempt", self._who.task_id)
            error = HttpError(
                401,
                f"This is the API of attempt {self._who.epoch} of {self._who.task_id}, and"
                " AGENTQ_TOKEN is not the one of that attempt. Nothing was changed.",
                "Leave the variables as the worker has set them, or run it outside the attempt.",
                code="bad_token",
            )
            error.exit_status = Refused.exit_status
            # Whoever it is, it came to the door of this attempt.
            where = f"{origin} of attempt {self._who.task_id}/{self._who.epoch}"
            self._service.note_refusal(None, error, "login", self._who.task_id, where)
            raise error

    def answer(self, request: Request, key: str = "", origin: str = "socket") -> Response:
        """The answer to a request, refusals included; the same again to the same `key`. `origin`
        says by which way it came."""
        who = replace(self._who, origin=f"{origin} on {_HOST}")
        try:
            self._check_alive()
            if request.path == PREFIX + WAKEUPS_PATH:
                return self._wait(request.query)
            found = find(request.method, request.path)
            if found.route.call not in ATTEMPT_CALLS:
                error = self._not_offered(found)
                self._service.note_refusal(who, error, found.route.call, who.task_id)
                raise error
            arguments = self._api.arguments(found, request)
            if request.method == "GET" or found.route.call == "tasks_by_id":
                return self._api.call(who, found, arguments)
            asked = request_key(key, found, request, arguments)
            with self._acting:
                kept = self._kept.get(key) if key else None
                if kept is not None and kept[0] != asked.digest:
                    raise key_reused()
                if kept is not None:
                    return kept[1]
                self._check_alive()
                if self._before_report is not None and found.route.call in _REPORTS:
                    self._before_report()
                answer = self._api.call(who, found, arguments)
                self._keep(asked, answer)
                return answer
        except AgentqError as error:
            return refusal(error)
        except Exception:
            log.exception("a request of %s failed in an unforeseen way", self._who.task_id)
            return refusal(AgentqError("The worker failed.", "Its log says why."))

    def _check_alive(self) -> None:
        if self._ended:
            raise Stale(
                f"Attempt {self._who.epoch} of {self._who.task_id} is over. Nothing was changed.",
                "Stop working on it.",
            )

    def _not_offered(self, found: RouteMatch) -> Refused:
        route = found.route
        return Refused(
            f"Attempt {self._who.epoch} of {self._who.task_id} may not ask for"
            f" {route.method} {route.path}: an attempt speaks for its own task and reads its own"
            " tree. Nothing was changed.",
            "A person can, outside the attempt.",
            code="not_permitted",
        )

    def _keep(self, asked: RequestKey, answer: Response) -> None:
        small = isinstance(answer.body, bytes) and len(answer.body) <= _KEPT_BYTES_MAX
        if asked.key and small:
            self._kept[asked.key] = asked.digest, answer
            if len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)

    def _wait(self, query: Sequence[tuple[str, str]]) -> Response:
        """Response when something changed, or after a moment: then the agent looks for itself."""
        plain = dict(query)
        topics = sorted({value for name, value in query if name == "topic"})
        rung: list[str] = []
        if plain.get("since"):
            with closing(self._doorbell.listen((EVENTS_TOPIC,))) as waiter:
                waiter.wait(min(_seconds(plain.get("seconds", "0")), _WAIT_SECONDS_MAX))
            rung = topics
        return Response(200, encode({"cursor": "0", "rung": rung}))


def _seconds(text: str) -> float:
    try:
        return max(float(text), 0.0)
    except ValueError:
        raise HttpError(400, f"seconds is a number, got {text[:40]!r}.") from None


def request_of(method: str, target: str) -> Request:
    """A request by its method and its target, which is a path and perhaps a query."""
    path, _, query = target.partition("?")
    return Request(method, path, parse_qsl(query, keep_blank_values=True))
