"""`agentq token`: by command and by SDK alike, and never a secret twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentq import Queue
from tests.eventually import eventually
from tests.interfaces.conftest import run_here
from tests.ways import served

SECRET = re.compile(r"agq_[A-Za-z0-9_-]{43}")


def test_a_token_is_made_listed_and_revoked(queue: Queue) -> None:
    assert "no tokens" in run_here("token", "list").ok().err
    assert run_here("token", "list", "--json").ok().json() == {"tokens": []}
    made = run_here(
        "token", "create", "--name", "ci", "--scope", "submit:builder", "--scope", "read"
    )
    secret = made.ok().out.strip()
    assert SECRET.fullmatch(secret), "alone on standard output, for a script to keep"
    assert "not shown again" in made.err and "has no end" in made.err and secret not in made.err
    (row,) = run_here("token", "list", "--json").ok().json()["tokens"]
    assert (row["name"], row["scopes"], row["good"]) == ("ci", ["read", "submit:builder"], True)
    assert (row["created_by"], row["expires_at"], row["revoked_at"]) == ("alice", None, None)
    shown = run_here("token", "list").ok()
    assert row["id"] in shown.out and "good" in shown.out
    # The SDK sees the same.
    assert [each.id for each in queue.admin.tokens()] == [row["id"]]
    who = queue._client.service.principal_of_token(secret)
    assert who is not None and who.name == "ci" and who.roles == {"builder"}
    assert "of ci is revoked (by alice)" in run_here("token", "revoke", "ci").ok().out
    again = run_here("token", "revoke", row["id"], "--json").ok().json()
    assert (again["good"], again["revoked_by"]) == (False, "alice")
    assert "revoked by alice" in run_here("token", "list").ok().out
    assert queue._client.service.principal_of_token(secret) is None
    every = (shown, run_here("token", "list"), run_here("token", "list", "--json"))
    assert all(secret not in each.out + each.err for each in every)


def test_one_that_expires(queue: Queue) -> None:
    made = run_here("token", "create", "--name", "ann", "--scope", "admin", "--expires", "90d")
    assert "expires in 12w6d" in made.ok().err
    assert "good for 12w" in run_here("token", "list").ok().out
    plain = run_here(
        "token", "create", "--name", "ann", "--scope", "approve", "--expires", "1s", "--json"
    )
    row = plain.ok().json()
    assert SECRET.fullmatch(row["secret"]) and row["expires_at"] > row["created_at"]
    info, secret = queue.admin.create_token("bob", ["read"], 0.001)
    assert info.expires_at == info.created_at + 1 and SECRET.fullmatch(secret)
    eventually(lambda: queue.admin.now() > info.expires_at, what="a millisecond to pass")
    assert "expired" in run_here("token", "list").ok().out


@pytest.mark.parametrize(
    ("words", "status", "cause"),
    [
        (["create", "--name", "ann", "--scope", "fly"], 2, "There is no scope 'fly'"),
        (["create", "--name", "ann", "--scope", "read:x"], 2, "takes no role"),
        (["create", "--name", "ann", "--scope", "work", "--scope", "admin"], 2, "Make two tokens"),
        (["create", "--name", "two words", "--scope", "read"], 2, "name of a token"),
        (["create", "--name", "ann", "--scope", "read", "--expires", "soon"], 2, "duration"),
        (["create", "--name", "ann", "--scope", "read", "--expires", "0"], 2, "zero"),
        (["create", "--name", "ann"], 2, "--scope"),
        (["create", "--scope", "read"], 2, "--name"),
        (["revoke", "nobody"], 3, "agentq token list"),
        (["revoke", "tok-"], 5, "Name one by its id"),
    ],
)
def test_what_makes_no_sense_is_refused(
    queue: Queue, words: list[str], status: int, cause: str
) -> None:
    there = [queue.admin.create_token(name, ["read"])[0] for name in ("one", "other")]
    run_here("token", *words).refused(status, cause)
    assert set(queue.admin.tokens()) == set(there), "as they were"


def test_a_worker_shows_a_token_of_its_own(
    home: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would record at the end of an attempt is taken from nobody else."""
    task = queue.submit("w", "x")
    with served(queue._client.installation.settings) as elsewhere:
        monkeypatch.setenv("AGENTQ_URL", elsewhere.url)
        monkeypatch.setenv("AGENTQ_TOKEN", elsewhere.token)
        refused = run_here("worker", "w", "--tasks", "1", "--", "true")
        refused.refused(4, "alice, a person", "--scope work", "Nothing was claimed")
    assert queue.task(task).epoch == 0
