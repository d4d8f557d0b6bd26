"""`agentq seal`, and what `agentq verify` proves with one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.interfaces.conftest import Submit, run_here


def sealed(*options: str) -> dict[str, object]:
    plain: dict[str, object] = run_here("seal", *options, "--json").ok().json()
    return plain


def test_a_seal_that_was_kept_proves_what_was(home: Path, submit: Submit) -> None:
    submit()
    run_here("status").ok()
    kept = str(sealed()["seal"])
    assert (
        "nothing that this seal is over was changed" in run_here("verify", "--seal", kept).ok().out
    )
    submit()
    assert "1 task" in run_here("verify", "--seal", kept, "--since-seal").ok().out
    shown = run_here("status", "--json").ok().json()["proved"]
    assert (shown["seal"], shown["position"]) == (kept, 1)
    assert f"proved at position 1, seal {kept[:16]}" in run_here("status").ok().out
    run_here("verify", "--seal", "ab" * 32).refused(8, "no seal of this ledger has that digest")
    run_here("verify", "--seal", "a word").refused(2, "64 hexadecimal digits")


def make_key(folder: Path, name: str) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
    subprocess.run(command, check=True)
    return folder / name


def test_a_seal_is_signed_with_a_key_of_openssh(home: Path, submit: Submit) -> None:
    submit()
    ann, eve = make_key(home, "ann"), make_key(home, "eve")
    run_here("verify", "--signer", f"{ann}.pub").refused(8, "No seal is signed")
    assert "signed with" in run_here("seal", "--sign", str(ann)).ok().out
    sealed()  # a later one that nobody has signed
    assert (
        "signed with that key up to position 1"
        in run_here("verify", "--signer", f"{ann}.pub").ok().out
    )
    run_here("verify", "--signer", f"{eve}.pub").refused(8, "not signed with the key")
    (home / "text").write_text("no")
    run_here("verify", "--signer", str(home / "text")).refused(2, "no public key")
    run_here("verify", "--signer", str(home / "nothing")).refused(2, "cannot be read")
    run_here("seal", "--sign", str(home / "nothing")).refused(2, "There is no key at")
    run_here("seal", "--sign", str(home / "text")).refused(2, "ssh-keygen did not sign")


@pytest.mark.beside("looks at the files of the installation")
def test_a_seal_stands_beside_the_artifacts(home: Path, submit: Submit) -> None:
    submit()
    plain = sealed()
    file = home / ".agentq" / "artifacts" / "agentq-seals" / str(plain["number"]) / "seal.json"
    assert json.loads(file.read_text())["seal"] == plain["seal"]
    run_here("verify").ok()
    # A file of a seal that the ledger does not have any more: somebody has written it anew.
    other = file.parents[1] / "99" / "seal.json"
    other.parent.mkdir()
    other.write_bytes(file.read_bytes())
    run_here("verify").refused(8, "agentq-seals", "of no seal that the ledger has")
    other.unlink()
    other.parent.rmdir()
    file.chmod(0o600)
    file.write_text("{}")
    run_here("verify").refused(8, "was altered")
    run_here("submit", "--to", "x", "--id", "agentq-seals", "do it").refused(
        2, "no task has that id"
    )
