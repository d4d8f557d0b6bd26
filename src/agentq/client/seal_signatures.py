"""Signatures of seals, made and checked by `ssh-keygen`: people have such keys, and no library of
ours has to be trusted with one."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from agentq.core.errors import Invalid, Unavailable

#: What the signature is for, so that no other one of the same key can be taken for it.
_NAMESPACE = "agentq"
#: Long enough to type a passphrase.
_SECONDS_MAX = 120.0


def sign(text: str, key: Path) -> str:
    """Sign with a private key, or with the agent that holds the key of this public one."""
    if not key.is_file():
        raise Invalid(f"There is no key at {key}. Nothing was signed.", "`ssh-keygen` makes one.")
    done = _run(["-Y", "sign", "-f", str(key), "-n", _NAMESPACE], text)
    if done.returncode:
        raise Invalid(
            f"ssh-keygen did not sign with {key}: {_last_line(done.stderr)}. Nothing was signed.",
            "Name a private key of the kind Ed25519, or a public one whose private key an agent"
            " holds.",
        )
    return done.stdout


def is_signed(text: str, signatures: tuple[str, ...], public_key: Path) -> bool:
    """Whether one of the signatures was made with the private key of this public one."""
    try:
        words = public_key.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"The public key {public_key} cannot be read: {error}.") from None
    if len(words) < 2:
        raise Invalid(
            f"{public_key} is no public key of OpenSSH.", "Name a file like id_ed25519.pub."
        )
    with tempfile.TemporaryDirectory() as folder:
        signers, file = Path(folder, "signers"), Path(folder, "signature")
        signers.write_text(f'{_NAMESPACE} namespaces="{_NAMESPACE}" {words[0]} {words[1]}\n')
        for signature in signatures:
            file.write_text(signature)
            asked = ["-Y", "verify", "-f", str(signers), "-I", _NAMESPACE, "-n", _NAMESPACE]
            if _run([*asked, "-s", str(file)], text).returncode == 0:
                return True
    return False


def _run(arguments: list[str], text: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments],  # noqa: S607 - as people have it
            input=text,
            capture_output=True,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(
            "ssh-keygen is not installed here: it makes and checks signatures.",
            "Install OpenSSH's client (Debian: openssh-client).",
        ) from None
    except subprocess.TimeoutExpired:
        raise Unavailable("ssh-keygen did not answer in two minutes.", "Try it by hand.") from None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].rstrip(".") if lines else "it said nothing"
