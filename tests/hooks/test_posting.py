"""Posting to a target: to the address that was looked at, and to no private one by surprise."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from agentq.core.errors import Refused, Unavailable
from agentq.hooks import posting
from agentq.hooks.posting import is_public, post
from tests.hooks.receiver import receiving


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.1", "10.0.0.1", "172.16.9.9", "192.168.1.1", "100.64.0.1",
        "169.254.169.254", "224.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1%eth0",
        "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2001:db8::1",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    ],
)  # fmt: skip
def test_addresses_that_are_not_for_everybody(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_that_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0x7f000001", "2130706433"])
def test_this_machine_is_refused_however_it_is_written(host: str) -> None:
    with receiving() as receiver:
        with pytest.raises((Refused, Unavailable)):
            post(f"http://{host}:{receiver.port}/", {}, b"", allow_private=False)
        assert receiver.received == []


def test_a_name_is_resolved_once_and_that_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever answers for a name cannot say another address after the first was looked at."""
    asked: list[object] = []
    real = socket.getaddrinfo

    def lying(host: object, *rest: object, **more: object) -> object:
        if host == "target.example":
            asked.append(host)
            address = "127.0.0.1" if len(asked) == 1 else "10.9.9.9"
            return real(address, *rest, **more)  # type: ignore[arg-type]
        return real(host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lying)
    with receiving() as receiver:
        url = f"http://target.example:{receiver.port}/a?b=c"
        answer = post(url, {"X-A": "1"}, b"body", allow_private=True)
        assert (answer.status, len(asked)) == (204, 1)
        (found,) = receiver.received
    assert (found.path, found.body, found.headers["x-a"]) == ("/a?b=c", b"body", "1")
    assert found.headers["host"] == f"target.example:{receiver.port}"


def test_a_name_with_only_private_addresses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    private = [(2, 1, 6, "", ("10.0.0.8", 443)), (2, 1, 6, "", ("169.254.169.254", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: private)
    with pytest.raises(Refused, match=r"at 10\.0\.0\.8") as caught:
        post("https://inside.example/", {}, b"", allow_private=False)
    assert caught.value.code == "private_address"


def test_redirects_are_not_followed_and_answers_are_cut() -> None:
    with receiving() as receiver:
        receiver.statuses = [302]
        receiver.answer_headers = {"Location": "http://169.254.169.254/latest/meta-data"}
        receiver.answer_body = b"x" * 1_000_000
        answer = post(receiver.url, {}, b"", allow_private=True)
    assert (answer.status, answer.is_good, len(answer.text)) == (302, False, 16 << 10)


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Unavailable, match="does not take it"):
        post(f"http://127.0.0.1:{port}/", {}, b"", allow_private=True)
    with pytest.raises(Unavailable, match="has no address"):
        post("http://nobody.invalid/", {}, b"", allow_private=True)


def test_no_certificate_no_delivery() -> None:
    with receiving() as receiver, pytest.raises(Unavailable):
        post(f"https://127.0.0.1:{receiver.port}/", {}, b"", allow_private=True)


def test_a_target_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "CONNECT_SECONDS", 5.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    while not ended.wait(0.02):
                        connection.sendall(b"H")
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        began = time.monotonic()
        with pytest.raises(Unavailable):
            post(f"http://127.0.0.1:{listener.getsockname()[1]}/", {}, b"", allow_private=True,
                 total_seconds=0.3)  # fmt: skip
        assert time.monotonic() - began < 30
        ended.set()
        thread.join()
