"""What `agentq doctor` finds that another user of this machine could read or write."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.cli.doctor.checks import Check
from agentq.private_files import Exposed, changeable, exposed
from agentq.settings.references import BY_REFERENCE, plain_secrets

if TYPE_CHECKING:
    from agentq.settings import Settings

#: So many are named; the command mends them all.
_NAMED_MAX = 5


def file_checks(settings: Settings) -> Iterator[Check]:
    """Whether ledger, artifacts, keys and sockets are this user's alone, and the settings too."""
    from agentq.wiring import local_files

    yield _files(exposed(local_files(settings)))
    yield _settings_file(settings)
    yield _passwords(settings)


def _files(found: list[Exposed]) -> Check:
    if not found:
        return Check("files", "ok", f"nobody but user {os.geteuid()} may read or write them")
    own = [each for each in found if each.uid == os.geteuid()]
    remedies = []
    if own:
        remedies.append(f"`chmod -R go-rwx {_paths(own)}`; `agentq init` does it too.")
    if len(own) < len(found):
        foreign = [each for each in found if each not in own]
        remedies.append(
            f"Let an administrator give them to this user: chown -R {os.geteuid()}"
            f" {_paths(foreign)}"
        )
    return Check("files", "warning", _named(found), " ".join(remedies))


def _settings_file(settings: Settings) -> Check:
    """Settings name programs that workers run: who may write them runs what they like."""
    source = settings.source
    if not Path(source).is_file():
        return Check("agentq.toml", "ok", f"none: {source} names the ledger")
    found = changeable(source)
    if not found:
        return Check("agentq.toml", "ok", f"nobody else may change {source}")
    places = _paths(found)
    return Check(
        "agentq.toml", "warning", f"others could change what agentq runs here: {_named(found)}",
        f"`chmod go-w {places}`",
    )  # fmt: skip


def _passwords(settings: Settings) -> Check:
    """A password in the settings is read by whoever reads them, and goes where they are copied."""
    source = Path(settings.source)
    found = plain_secrets(source) if source.is_file() else []
    if not found:
        return Check("passwords", "ok", "none in the settings")
    names = ", ".join(found)
    detail = f"{source} holds a password in plain text: {names}"
    shown = exposed([str(source)])
    if shown:
        detail += f"; {_named(shown)}"
    remedy = f"{BY_REFERENCE[0].upper()}{BY_REFERENCE[1:]}."
    if shown:
        remedy += f" Until then: `chmod 600 {shlex.quote(str(source))}`"
    return Check("passwords", "warning", detail, remedy)


def _named(found: list[Exposed]) -> str:
    words = []
    for each in found[:_NAMED_MAX]:
        who = "others" if each.uid == os.geteuid() else f"user {each.uid}, who owns it, and others"
        if not each.words:
            who = f"user {each.uid}, who owns it,"
        words.append(f"{who} may {each.words or 'read and write'} {each.path} ({each.mode:04o})")
    more = len(found) - len(words)
    return "; ".join(words) + (f"; and {more} more" if more else "")


def _paths(found: list[Exposed]) -> str:
    """The paths as words for a shell, without those below others.

    What SQLite keeps beside a ledger comes and goes: a star stands for it.
    """
    paths = [each.path for each in found]
    top = [path for path in paths if not any(path.startswith(f"{each}/") for each in paths)]
    words = []
    for path in top:
        if not any(path != each and path.startswith(each) for each in top):
            beside = any(path != each and each.startswith(path) for each in top)
            words.append(shlex.quote(path) + ("*" if beside else ""))
    return " ".join(words)
