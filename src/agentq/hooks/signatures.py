"""Proof that a webhook comes from whoever knows the secret, made and checked.

Four kinds: GitHub's `X-Hub-Signature-256`, Standard Webhooks (an id and a moment are signed with
the body, so that what is replayed later is refused), a bearer token, and a plain HMAC in a header
of one's choice. All comparisons take the same time wherever the two texts differ.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from agentq.core.errors import Invalid, Refused

GITHUB, STANDARD, BEARER, HMAC = "github", "standard", "bearer", "hmac"
KINDS = (GITHUB, STANDARD, BEARER, HMAC)
ALGORITHMS = ("sha256", "sha512", "sha1")
ENCODINGS = ("hex", "base64")
#: How much the clock of a sender may differ from ours: as Standard Webhooks recommends.
TOLERANCE_SECONDS = 300
SECRET_PREFIX = "whsec_"  # noqa: S105 - how a secret begins, not one
#: A sender that changes its secret signs with both for a while.
_SIGNATURES_MAX = 20
_MOMENT = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Proof:
    """How deliveries of a hook are signed. Names of headers are in small letters; those that are
    empty are not looked at."""

    kind: str
    header: str = ""
    prefix: str = ""
    algorithm: str = "sha256"
    encoding: str = "hex"
    #: Of an HMAC: the header with the seconds that are signed as `seconds.body`.
    timestamp: str = ""
    tolerance: int = TOLERANCE_SECONDS


def check_signature(
    proof: Proof, secret: str, headers: Mapping[str, str], body: bytes, now: float
) -> None:
    """Raise `Refused` unless the delivery was signed with this secret, and lately."""
    if proof.kind == BEARER:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        good = scheme.lower() == "bearer" and _same(token.strip().encode(), secret.encode())
    elif proof.kind == STANDARD:
        good = _check_standard(proof, secret, headers, body, now)
    else:
        good = _check_hmac(proof, secret, headers, body, now)
    if not good:
        raise _forged("its signature is not that of our secret")


def _check_standard(
    proof: Proof, secret: str, headers: Mapping[str, str], body: bytes, now: float
) -> bool:
    message_id = headers.get("webhook-id", "")
    moment, given = headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "")
    if not (message_id and moment and given):
        raise _forged("it lacks webhook-id, webhook-timestamp or webhook-signature")
    _check_moment(moment, proof.tolerance, now)
    expected = standard_signature(secret, message_id, int(moment), body).encode()
    words = given.split()[:_SIGNATURES_MAX]
    # Each of them is compared, so that the time says nothing of which one is right.
    return sum(_same(word.encode(), expected) for word in words) > 0


def _check_hmac(
    proof: Proof, secret: str, headers: Mapping[str, str], body: bytes, now: float
) -> bool:
    given = headers.get(proof.header, "")
    if not given.startswith(proof.prefix):
        raise _forged(f"{proof.header} does not begin with {proof.prefix}")
    signed = body
    if proof.timestamp:
        moment = headers.get(proof.timestamp, "")
        _check_moment(moment, proof.tolerance, now)
        signed = moment.encode() + b"." + body
    digest = hmac.new(secret.encode(), signed, proof.algorithm)
    given = given.removeprefix(proof.prefix)
    if proof.encoding == "hex":
        return _same(given.lower().encode(), digest.hexdigest().encode())
    return _same(given.encode(), b64encode(digest.digest()))


def _same(given: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(given, expected)


def _check_moment(moment: str, tolerance: int, now: float) -> None:
    if not _MOMENT.fullmatch(moment):
        raise _forged("its timestamp is no number of seconds")
    if abs(int(moment) - now) > tolerance:
        raise _forged(f"its timestamp is more than {tolerance} s away from our clock")


def _forged(why: str) -> Refused:
    return Refused(
        f"The delivery is not accepted: {why}. Nothing was stored.",
        "Check that both sides have the same secret, and that their clocks are right.",
        code="bad_signature",
    )


def standard_key(secret: str) -> bytes:
    """The key that a secret of Standard Webhooks stands for; `Invalid` for what is none."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX) + "==", validate=False)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise Invalid(
            "The secret of a Standard Webhook is base64, after whsec_; this one is not.",
            "Make one with: openssl rand -base64 32",
        )
    return key


def standard_signature(secret: str, message_id: str, moment: int, body: bytes) -> str:
    """The signature of Standard Webhooks: `v1,` and base64."""
    signed = f"{message_id}.{moment}.".encode() + body
    digest = hmac.new(standard_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{b64encode(digest).decode()}"
