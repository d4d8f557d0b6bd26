"""Remotes of a repository: pushing to them and fetching from them, though an agent may have written
the settings that say where they are and what is run on the way.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from agentq.core.errors import AgentqError, Invalid, Unavailable
from agentq.repository.git import LONG_TIMEOUT_SECONDS, Git, GitLocation
from agentq.repository.snapshot_refs import WorkSnapshot, beyond, save_foreign

#: Snapshots are pushed at the end of every attempt: a remote that hangs must not hold it for long.
SNAPSHOT_SECONDS = 120.0

#: So the end of a summary begins that tells of a push which failed.
PUSH_FAILED = "Failed: the branch was not pushed"

#: Settings that make git run a program. In the repository itself an agent may have set them.
_RUNS_PROGRAMS = re.compile(
    r"core\.(sshcommand|gitproxy|askpass)|credential\..+|remote\..+\.(receivepack|uploadpack|vcs)",
    re.IGNORECASE | re.DOTALL,
)


def push_address(git: Git, place: GitLocation, push: str) -> str:
    """Where `push`, a remote's name or an address, leads to."""
    known = git.ask(place, "remote", "get-url", "--push", "--", push)
    if known.ok:
        return known.text
    if push.startswith("-") or not push.isprintable() or not re.search("[:/]", push):
        raise Invalid(
            f"{place.folder} has no remote {push[:200]!r} to push to.",
            "Name a remote that `git remote` lists, or an address.",
        )
    return push


def address_sha256(address: str) -> str:
    """All that is written down of an address, which may hold a password."""
    return hashlib.sha256(address.encode("utf-8", "replace")).hexdigest() if address else ""


def why_not_used(git: Git, place: GitLocation, push: str, push_sha256: str) -> str:
    """Why nothing may be pushed or fetched there now; "" if it may."""
    if address_sha256(push_address(git, place, push)) != push_sha256:
        return f"the address of {push} changed during the attempt."
    if name := running_programs(git, place):
        return (
            f"{name[:100]} is set in the repository, where an agent may write; set it in your own"
            " git settings (git config --global) instead."
        )
    return ""


def running_programs(git: Git, place: GitLocation) -> str:
    """A setting of the repository itself that makes git run a program; "" if it has none."""
    words = ("config", "-z", "--list", "--show-scope", "--name-only")
    listed = iter(git.do(place, *words).names())
    for scope, name in zip(listed, listed, strict=False):
        if scope in ("local", "worktree") and _RUNS_PROGRAMS.fullmatch(name):
            return name
    return ""


def push_to(
    git: Git, place: GitLocation, push: str, push_sha256: str, refspec: str,
    timeout: float = LONG_TIMEOUT_SECONDS,
) -> str:  # fmt: skip
    """Push one ref; what kept it from being pushed, or ""."""
    try:
        reason = why_not_used(git, place, push, push_sha256)
        if reason:
            return f"Not pushed: {reason}"
        words = ("push", "--quiet", "--no-verify", "--no-signed", push, refspec)
        git.do(place, *words, timeout=timeout)
    except AgentqError as error:
        return f"Not pushed: {error.cause}"
    return ""


def delete_ref(git: Git, shared: GitLocation, push: str, push_sha256: str, ref: str) -> str:
    """Delete a ref at the remote; why not, or ""."""
    return push_to(git, shared, push, push_sha256, f":{ref}", SNAPSHOT_SECONDS)


def fetch_snapshot(
    git: Git, shared: GitLocation, push: str, push_sha256: str, snapshot: WorkSnapshot
) -> str:
    """Fetch a snapshot that a worker elsewhere has pushed; why it is not here, or ""."""
    try:
        reason = why_not_used(git, shared, push, push_sha256)
        if reason:
            return reason
        pushed_to = push_address(git, shared, push)
        fetched_from = git.ask(shared, "remote", "get-url", "--", push)
        # A remote may be read at one address and written at another.
        source = push if fetched_from.text == pushed_to else pushed_to
        try:
            return _fetch(git, shared, source, snapshot, snapshot.ref, SNAPSHOT_SECONDS)
        except Unavailable as error:
            # Of a task that is over a pushed branch may be all that the remote has left of it.
            try:
                return _fetch(git, shared, source, snapshot, snapshot.commit, SNAPSHOT_SECONDS)
            except Unavailable:
                return error.cause
    except AgentqError as error:
        return error.cause


def fetch_bundle(git: Git, shared: GitLocation, bundle: Path, snapshot: WorkSnapshot) -> str:
    """Take a snapshot from a bundle file; why it is not here, or ""."""
    try:
        return _fetch(git, shared, str(bundle), snapshot, snapshot.ref, LONG_TIMEOUT_SECONDS)
    except AgentqError as error:
        return error.cause


def _fetch(
    git: Git, shared: GitLocation, source: str, snapshot: WorkSnapshot, wanted: str, timeout: float
) -> str:
    save_foreign(git, shared, snapshot.ref, {snapshot.commit})
    git.do(
        shared, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
        "--no-recurse-submodules", source, f"+{wanted}:{snapshot.ref}",
        timeout=timeout,
    )  # fmt: skip
    # Whoever may write to the remote may move the ref. What counts is the commit we were told.
    if git.tip(shared, snapshot.ref) != snapshot.commit:
        return f"{snapshot.ref} is another commit there than the one that the attempt left"
    return ""


def write_bundle(
    git: Git, shared: GitLocation, snapshot: WorkSnapshot, file: Path, bytes_max: int
) -> str:
    """Write what the snapshot adds to the base as one file; why not, or ""."""
    words = ("bundle", "create", "--quiet", "-", snapshot.ref, *beyond(snapshot))
    with file.open("xb") as target:
        limit = bytes_max or 1 << 62
        made = git.ask(shared, *words, into=target, limit=limit, timeout=LONG_TIMEOUT_SECONDS)
    if made.is_cut:
        return f"it is larger than {bytes_max} bytes (snapshot_bytes)"
    return "" if made.ok else f"git bundle did not work: {made.err}"
