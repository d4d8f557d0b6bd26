"""`agentq verify` and `agentq seal`: whether what is shown can be proved, and a digest to keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.options import command
from agentq.cli.screen import (
    answer,
    clean,
    emit_json,
    is_terminal,
    iso_time,
    paint,
    progress_bar,
    say,
)
from agentq.cli.session import Session, pass_session
from agentq.core.counting import counted
from agentq.core.errors import Damaged, Invalid

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.proof_values import Seal
    from agentq.contracts.service_values import Problem

_DIGEST_CHARS = 64


@command()
@click.option("--seal", "kept", metavar="DIGEST", default="", help="Prove what this seal is over.")
@click.option("--since-seal", is_flag=True, help="Only what changed since the newest seal.")
@click.option("--signer", type=click.Path(path_type=Path), help="Who signed it: a public key.")
@pass_session
def verify(session: Session, kept: str, since_seal: bool, signer: Path | None) -> None:
    """Prove every state from the log and check every file.

    Replays the log of every task through the rules and compares with everything that is stored:
    rows of tasks, and what stands beside them; computes every digest and every seal again; checks
    that every context, artifact and result is there as it was recorded, and nothing else. Exits
    with 8 if anything does not add up; each finding names the row or file, what was expected, what
    was found, and what to do. With --json each is a line, and the last line sums up.

    A seal that you kept elsewhere proves more: that nothing of what it is over was changed,
    removed or added since, by anybody. --signer names a public key of OpenSSH, whose owner must
    have signed the newest seal that is signed at all.
    """
    kept = _digest(kept)
    queue = session.reader()
    looked_at, problems, total = 0, 0, 0
    if is_terminal():
        total = sum(sum(counts.values()) for counts in queue.stats().by_role.values())
    with progress_bar("verifying", total) as show_progress:
        for looked_at, found in queue.verify(seal=kept, since_seal=since_seal):
            show_progress(looked_at)
            problems += len(found)
            for problem in found:
                if session.json:
                    emit_json(_finding(problem), one_per_line=True)
                else:
                    bad = paint("✗", "red")
                    say(f"{bad} {paint(problem.task_id, 'bold')}: {clean(problem.what)}")
                    if problem.where:
                        say(f"  → {clean(problem.where)}: {clean(problem.advice)}")
    seal = queue.last_seal()
    signed = _signed_by(queue, signer) if signer is not None else None
    if session.json:
        plain = {"ok": not problems, "tasks": looked_at, "problems": problems}
        emit_json(plain | {"seal": seal.digest if seal else None}, one_per_line=True)
        click.get_current_context().exit(Damaged.exit_status if problems else 0)
    if problems:
        raise Damaged(
            f"{counted(problems, 'problem')} in {counted(looked_at, 'task')}: what is shown"
            " cannot be proved.",
            "Restore what is missing or altered from a backup; `agentq replay ID` shows one task.",
        )
    good = paint("✓", "green")
    tasks = counted(looked_at, "task")
    say(f"{good} {tasks}: every state proved from the log, every file as recorded")
    if signed is not None:
        say(f"{good} signed with that key up to position {signed.position}")
    if kept:
        say(f"{good} nothing that this seal is over was changed, removed or added since")


@command()
@click.option("--sign", "key", type=click.Path(path_type=Path), help="Sign it with this key.")
@pass_session
def seal(session: Session, key: Path | None) -> None:
    """Seal the log: one digest over all that it says.

    Proves what has changed since the last seal first. Keep the digest where nobody who can write
    the ledger can reach it; `agentq verify --seal DIGEST` proves later that nothing has changed.

    --sign names a key of OpenSSH (`ssh-keygen -t ed25519` makes one). The signature stays beside
    the seal; `agentq verify --signer KEY.pub` asks for it.
    """
    queue = session.client()
    made = queue.seal()
    if key is not None:
        from agentq.client.seal_signatures import sign
        from agentq.contracts.proof_values import seal_text

        made = queue.sign_seal(made.digest, sign(seal_text(made), key))
    words = f"{made.digest}\nseals the log up to position {made.position}: "
    words += f"{counted(made.tasks, 'task')} with {counted(made.events, 'event')} since the last"
    if key is not None:
        words += f"; signed with {key}"
    answer(session, _plain(made), words)


def _finding(problem: Problem) -> dict[str, str]:
    return {
        "task_id": problem.task_id,
        "what": problem.what,
        "where": problem.where,
        "expected": problem.expected,
        "found": problem.found,
        "advice": problem.advice,
    }


def _plain(made: Seal) -> dict[str, Any]:
    return {
        "seal": made.digest,
        "number": made.number,
        "at": iso_time(made.at),
        "position": made.position,
        "tasks": made.tasks,
        "events": made.events,
        "ledger_id": made.ledger_id,
        "signatures": list(made.signatures),
    }


def _digest(kept: str) -> str:
    kept = kept.strip().lower()
    if kept and (len(kept) != _DIGEST_CHARS or not set(kept) <= set("0123456789abcdef")):
        raise Invalid(
            f"A seal is a digest of {_DIGEST_CHARS} hexadecimal digits, got {kept[:80]!r}.",
            "`agentq seal` printed it.",
        )
    return kept


def _signed_by(queue: QueueReader, signer: Path) -> Seal:
    from agentq.client.seal_signatures import is_signed
    from agentq.contracts.proof_values import seal_text

    seal = queue.last_seal(signed=True)
    if seal is None or not is_signed(seal_text(seal), seal.signatures, signer):
        which = f"Seal {seal.digest[:16]}…, the newest signed one," if seal else "No seal"
        raise Damaged(
            f"{which} is {'not ' if seal else ''}signed with the key {signer}.",
            "`agentq seal --sign KEY` makes a signed one; until then nobody vouches for it.",
        )
    return seal
