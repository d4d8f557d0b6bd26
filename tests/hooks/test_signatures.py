"""Signatures of webhooks: the vectors of the public specifications, forgeries and replays."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from agentq.core.errors import Invalid, Refused
from agentq.hooks.signatures import (
    BEARER,
    GITHUB,
    HMAC,
    STANDARD,
    Proof,
    check_signature,
    standard_key,
    standard_signature,
)

#: GitHub's documentation, "Validating webhook deliveries": its example for testing.
GITHUB_SECRET, GITHUB_BODY = "It's a Secret to Everybody", b"Hello, World!"
GITHUB_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
GITHUB_PROOF = Proof(GITHUB, "x-hub-signature-256", "sha256=")
#: The reference vector of Standard Webhooks.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID, MOMENT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
STANDARD_PROOF = Proof(STANDARD)


def standard_headers(**other: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in other.items()}
    return {
        "webhook-id": MESSAGE_ID,
        "webhook-timestamp": str(MOMENT),
        "webhook-signature": SIGNATURE,
        **named,
    }


def test_the_example_of_github() -> None:
    headers = {"x-hub-signature-256": GITHUB_SIGNATURE}
    check_signature(GITHUB_PROOF, GITHUB_SECRET, headers, GITHUB_BODY, 0)
    for secret, body in ((GITHUB_SECRET, b"Hello, World"), ("another", GITHUB_BODY)):
        with pytest.raises(Refused, match="not that of our secret"):
            check_signature(GITHUB_PROOF, secret, headers, body, 0)


@pytest.mark.parametrize(
    "given_signature", ["", "sha256=", "sha1=757107ea", GITHUB_SIGNATURE[7:], "sha256=ünï"]
)
def test_what_github_would_not_sign_is_refused(given_signature: str) -> None:
    headers = {"x-hub-signature-256": given_signature}
    with pytest.raises(Refused):
        check_signature(GITHUB_PROOF, GITHUB_SECRET, headers, GITHUB_BODY, 0)


def test_the_vector_of_standard_webhooks() -> None:
    assert standard_signature(SECRET, MESSAGE_ID, MOMENT, BODY) == SIGNATURE
    check_signature(STANDARD_PROOF, SECRET, standard_headers(), BODY, MOMENT)
    # A sender that changes its secret signs with both.
    both = standard_headers(webhook_signature=f"v1,AAAA v2,BBBB {SIGNATURE}")
    check_signature(STANDARD_PROOF, SECRET, both, BODY, MOMENT)


@pytest.mark.parametrize(
    ("other", "now", "why"),
    [
        pytest.param({}, MOMENT + 301, "300 s away", id="replayed later"),
        pytest.param({}, MOMENT - 301, "300 s away", id="from the future"),
        pytest.param({"webhook_id": "msg_2"}, MOMENT, "not that of", id="under another id"),
        pytest.param({"webhook_timestamp": str(MOMENT + 1)}, MOMENT, "not that of", id="later"),
        pytest.param({"webhook_signature": "v1"}, MOMENT, "not that of", id="half a signature"),
        pytest.param({"webhook_signature": SIGNATURE[3:]}, MOMENT, "not that", id="no version"),
        pytest.param({"webhook_signature": ""}, MOMENT, "it lacks", id="no signature"),
        pytest.param({"webhook_id": ""}, MOMENT, "it lacks", id="no id"),
        pytest.param({"webhook_timestamp": "soon"}, MOMENT, "no number", id="no moment"),
        pytest.param({"webhook_timestamp": "1" * 400}, MOMENT, "no number", id="a huge moment"),
        pytest.param({"webhook_timestamp": "nan"}, MOMENT, "no number", id="not a number"),
    ],
)
def test_what_standard_webhooks_forbid(other: dict[str, str], now: int, why: str) -> None:
    with pytest.raises(Refused, match=why):
        check_signature(STANDARD_PROOF, SECRET, standard_headers(**other), BODY, now)


@given(st.binary(min_size=24, max_size=64), st.text(max_size=40), st.integers(1, 2**33))
def test_the_client_library_of_standard_webhooks_signs_what_we_verify(
    key: bytes, text: str, moment: int
) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    text = text.encode("utf-8", "replace").decode()
    signed = Webhook(secret).sign("msg_1", datetime.fromtimestamp(moment, UTC), text)
    headers = {
        "webhook-id": "msg_1", "webhook-timestamp": str(moment), "webhook-signature": signed,
    }  # fmt: skip
    check_signature(STANDARD_PROOF, secret, headers, text.encode(), moment)
    assert standard_signature(secret, "msg_1", moment, text.encode()) == signed


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!", "ü"])
def test_a_secret_of_standard_webhooks_is_base64(secret: str) -> None:
    with pytest.raises(Invalid, match="base64"):
        standard_key(secret)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_bearer(scheme: str) -> None:
    check_signature(Proof(BEARER), "hunter2", {"authorization": f"{scheme} hunter2 "}, b"", 0)


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer hunter", "Basic hunter2", "hunter2"])
def test_another_bearer(sent: str) -> None:
    with pytest.raises(Refused):
        check_signature(Proof(BEARER), "hunter2", {"authorization": sent}, b"", 0)


@pytest.mark.parametrize("encoding", ["hex", "base64"])
@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "sha1"])
def test_a_plain_hmac(algorithm: str, encoding: str) -> None:
    proof = Proof(HMAC, "x-mine", "sig=", algorithm, encoding)
    digest = hmac.new(b"key", BODY, getattr(hashlib, algorithm)).digest()
    written = digest.hex().upper() if encoding == "hex" else base64.b64encode(digest).decode()
    check_signature(proof, "key", {"x-mine": f"sig={written}"}, BODY, 0)
    for wrong in (f"sig={written[:-2]}", written, "sig=", ""):
        with pytest.raises(Refused):
            check_signature(proof, "key", {"x-mine": wrong}, BODY, 0)


def test_an_hmac_with_a_moment() -> None:
    proof = Proof(HMAC, "x-mine", timestamp="x-at", tolerance=10)
    signed = hmac.new(b"key", b"1000." + BODY, hashlib.sha256).hexdigest()
    headers = {"x-mine": signed, "x-at": "1000"}
    check_signature(proof, "key", headers, BODY, 1010)
    for changed, now in (({}, 1011), ({"x-at": "1001"}, 1000), ({"x-at": ""}, 1000)):
        with pytest.raises(Refused):
            check_signature(proof, "key", {**headers, **changed}, BODY, now)


@given(st.sampled_from([GITHUB_PROOF, STANDARD_PROOF, Proof(BEARER), Proof(HMAC, "x-mine")]),
       st.dictionaries(st.sampled_from(["x-hub-signature-256", "webhook-id", "authorization",
                                        "webhook-timestamp", "webhook-signature", "x-mine"]),
                       st.text(st.characters(max_codepoint=255), max_size=60)),
       st.binary(max_size=200))  # fmt: skip
def test_whatever_comes_is_refused_in_words(
    proof: Proof, headers: dict[str, str], body: bytes
) -> None:
    with pytest.raises(Refused, match="Nothing was stored"):
        check_signature(proof, "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=", headers, body, 1000)
