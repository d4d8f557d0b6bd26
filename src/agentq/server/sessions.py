"""Browser sessions and the codes that open them.

A session is named by 256 random bits in a cookie, of which only a digest is kept. It stands for a
person at this machine, or for a token that is asked about again in every request: revoke it, and
its sessions have ended. Codes are in the memory of the server alone; sessions are files too (see
`session_files`), so that a browser goes on when the server was restarted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agentq.contracts.routes import SESSION_SECONDS
from agentq.core.access import Principal, PrincipalKind
from agentq.server.session_files import KeptSession, SessionFiles, sealed, unsealed

#: How long a link may wait for its click.
CODE_SECONDS = 600.0
#: A session that nobody has used for so long has ended.
IDLE_SECONDS = 2 * 3600.0
#: Beyond these the oldest codes, and the sessions unused for longest, make way.
CODES_MAX = 100
SESSIONS_MAX = 1000
_SECRET_BYTES = 32
#: A file says up to so long ago when its session was last used.
_NOTE_SECONDS = 60.0
#: So far a clock may be put back before a session counts as ended.
_CLOCK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Login:
    """For whom a session is: a person whom the server knows by itself, or whoever has a token."""

    person: Principal | None = None
    token: str = field(default="", repr=False)


@dataclass(slots=True)
class _OpenSession:
    login: Login
    opened_at: float
    used_at: float
    #: Whether there is a file, with which the session ends; and the last use that it knows of.
    is_kept: bool = False
    noted_at: float = 0.0


class Sessions:
    """The open codes and sessions. For several threads. Without `files` a restart ends them all."""

    def __init__(
        self, clock: Callable[[], float] = time.time, files: SessionFiles | None = None
    ) -> None:
        self._clock = clock
        self._files = files
        self._guard = threading.Lock()
        self._codes: dict[str, tuple[Login, float]] = {}
        self._sessions: dict[str, _OpenSession] = {}

    def issue_code(self, login: Login) -> str:
        """Make a code that opens one session, once and soon."""
        code = secrets.token_urlsafe(_SECRET_BYTES)
        with self._guard:
            now = self._clock()
            self._codes = {key: each for key, each in self._codes.items() if now < each[1]}
            self._codes[_digest(code)] = (login, now + CODE_SECONDS)
            while len(self._codes) > CODES_MAX:
                self._codes.pop(next(iter(self._codes)))
        return code

    def use_code(self, code: str) -> Login | None:
        """Use up a code; None if it is unknown, too old or used already."""
        with self._guard:
            # Found by its digest: how long that takes tells nothing about any code.
            login, end = self._codes.pop(_digest(code), (None, 0.0))
            return login if self._clock() < end else None

    def open(self, login: Login) -> str:
        """Open a session; the secret that its cookie holds."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        with self._guard:
            now = self._clock()
            self._sessions = {
                key: each for key, each in self._sessions.items() if self._seconds_left(each) > 0
            }
            session = _OpenSession(login, now, now, noted_at=now)
            kept = _to_keep(secret, session)
            if self._files is not None and kept is not None:
                session.is_kept = self._files.save(_digest(secret), kept)
                self._files.prune(now - IDLE_SECONDS, SESSIONS_MAX)
            self._sessions[_digest(secret)] = session
            while len(self._sessions) > SESSIONS_MAX:
                self._sessions.pop(next(iter(self._sessions)))
        return secret

    def use(self, secret: str) -> Login | None:
        """For whom this session is; None if there is none, or not any more."""
        key = _digest(secret)
        with self._guard:
            session = self._take(key, secret)
            if session is None or self._seconds_left(session) <= 0:
                return None
            session.used_at = self._clock()
            if self._files is not None and session.used_at - session.noted_at >= _NOTE_SECONDS:
                session.noted_at = session.used_at
                self._files.touch(key, session.used_at)
            self._sessions[key] = session  # the last of them again
            return session.login

    def _take(self, key: str, secret: str) -> _OpenSession | None:
        """The session from memory, else from its file; None once its file was removed."""
        session = self._sessions.pop(key, None)
        if self._files is None or (session is not None and not session.is_kept):
            return session
        if session is not None:
            return session if self._files.is_there(key) else None
        kept = self._files.load(key)
        return None if kept is None else _from_kept(secret, kept)

    def end(self, secret: str) -> None:
        """End a session, if it has not ended."""
        with self._guard:
            self._sessions.pop(_digest(secret), None)
            if self._files is not None:
                self._files.remove(_digest(secret))

    def seconds_left(self, secret: str) -> int:
        """How long the session can last if it is used; 0 if it has ended."""
        with self._guard:
            session = self._sessions.get(_digest(secret))
            return max(0, int(self._seconds_left(session))) if session else 0

    def _seconds_left(self, session: _OpenSession) -> float:
        now = self._clock()
        # One from the future was opened under another clock: nobody knows how old it is.
        if now - session.used_at >= IDLE_SECONDS or session.opened_at > now + _CLOCK_SECONDS:
            return 0.0
        return session.opened_at + SESSION_SECONDS - now


def _to_keep(secret: str, session: _OpenSession) -> KeptSession | None:
    """What a file keeps of a session; None for one of anybody but a person here or a token."""
    login, at = session.login, session.opened_at
    if login.token:
        return KeptSession("", sealed(secret, login.token), at, at)
    if login.person is not None and login.person == _local_person(login.person.name):
        return KeptSession(login.person.name, "", at, at)
    return None


def _from_kept(secret: str, kept: KeptSession) -> _OpenSession | None:
    if bool(kept.person) == bool(kept.sealed_token):
        return None
    try:
        login = (
            Login(_local_person(kept.person))
            if kept.person
            else Login(token=unsealed(secret, kept.sealed_token))
        )
    except ValueError:
        return None
    return _OpenSession(login, kept.opened_at, kept.used_at, is_kept=True, noted_at=kept.used_at)


def _local_person(name: str) -> Principal:
    return Principal(PrincipalKind.PERSON, name, proof="local")


def csrf_token(secret: str) -> str:
    """What pages of a session send along when they change something, and no other site can know.

    It follows from the cookie, which no script can read, so nothing more is to be kept.
    """
    return hmac.new(secret.encode(), b"agentq csrf token", "sha256").hexdigest()


def is_csrf_token(secret: str, shown: str) -> bool:
    return hmac.compare_digest(csrf_token(secret).encode(), shown.encode("utf-8", "replace"))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
