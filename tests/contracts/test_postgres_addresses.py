"""Addresses of ledgers: what is shown of them never holds a password, nor a part of one."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from agentq.core.errors import Invalid
from agentq.settings import load_settings, without_password
from agentq.stores.postgres.errors import parse_url

#: Characters that should have been written as %XX cut the password in two.
TORN = [
    "postgresql://agentq@retpw:x@bad/",
    "postgresql://u:sec@ret@host/db",
    "postgresql://u:sec/ret@host/db",
    "postgresql://u:5/ret@host/db",
    "postgresql://u:secret/db",
    "postgresql://host?password=sec@ret",
]


@pytest.mark.parametrize("url", TORN)
def test_an_address_that_was_cut_in_two(url: str) -> None:
    with pytest.raises(Invalid, match="cannot be read") as refused:
        parse_url(url)
    assert "ret" not in refused.value.cause and "%XX" in refused.value.remedy
    assert without_password(url) == "postgresql://…"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h:5432/db", "postgresql://u@h:5432/db"),
        ("postgresql://u@h/db?password=secret", "postgresql://u@h/db"),
        ("postgresql://u@h/db?%70assword=secret&sslmode=require",
         "postgresql://u@h/db?sslmode=require"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db?host=/run/postgresql"),
        ("postgresql://u:s%40cret@[::1]:5,h2/db", "postgresql://u@[::1]:5,h2/db"),
        ("postgresql://h/db?password=a@secret", "postgresql://…"),
        ("amqp://guest:secret@h:5672/v", "amqp://guest@h:5672/v"),
        ("sqlite:///a@b/ledger.db", "sqlite:///a@b/ledger.db"),
    ],
)  # fmt: skip
def test_what_others_may_see(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    "url", ["postgre://u@h/db?password=secret", "mysql://u:a@secret@h/db", "u:secret@h"]
)
def test_a_ledger_that_is_not_known(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings(url)
    assert "secret" not in str(refused.value)


def test_addresses_that_are_fine() -> None:
    several = parse_url("postgresql://u%40corp:p%40w@h1:5,h2:6/d%40b")[1]
    assert several == "postgresql://u%40corp@h1:5,h2:6/d%40b"
    assert parse_url("postgresql://u:p@h/db?password=a@b")[1] == "postgresql://u@h/db"
    assert parse_url("postgresql:///db?host=/run/with@sign")[1]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://postgres:secret@/db?host=/run/with%20space",
        "postgresql://u:secret@/db?host=/run/a,/run/b&port=5433",
        "postgresql://u:secret@[::1]:5433,h2:5434/db",
        "postgresql://u:secret@h1,h2:6/db",
        "postgresql:///db?service=team&password=secret",
        "postgresql://u:secret@h/d%2Fb?hostaddr=127.0.0.1",
    ],
)
def test_what_is_shown_leads_to_the_same_place(url: str) -> None:
    shown = parse_url(url)[1]
    assert "secret" not in shown
    meant, used = conninfo_to_dict(url), conninfo_to_dict(shown)
    del meant["password"]
    assert {name: str(value) for name, value in used.items() if value} == {
        name: str(value) for name, value in meant.items() if value
    }
