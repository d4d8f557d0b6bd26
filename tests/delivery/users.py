"""The users that `agentq init --broker` prints commands for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from agentq.delivery.rabbitmq import declare, user_commands
from tests.delivery.foreign_messages import ROLE
from tests.servers.rabbitmq import RabbitServer

PASSWORD = "password"
_MODULE = "rabbit_auth_backend_internal"


@contextmanager
def made_by(server: RabbitServer, commands: Sequence[str]) -> Iterator[None]:
    """Everybody that these commands make, made by what the commands call; gone at the end."""
    made, calls = [], []
    for line in commands:
        words = shlex.split(line, comments=True)
        if not words or words[1] == "set_policy":
            continue
        if words[1] == "add_user":
            arguments = [words[2], PASSWORD, "tests"]
            made.append(words[2])
        else:
            assert words[2] == "-p"
            arguments = [words[4], words[3], *words[5:], "tests"]
        listed = ", ".join('<<"' + word.replace("\\", "\\\\") + '">>' for word in arguments)
        calls.append(f"{_MODULE}:{words[1]}({listed})")
    server.call(*calls)
    try:
        yield
    finally:
        server.call(*(f'{_MODULE}:delete_user(<<"{user}">>, <<"tests">>)' for user in made))


@pytest.fixture
def users(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Iterator[None]:
    """All that are printed for two roles."""
    declare(rabbitmq_url, [ROLE, "other"])
    with made_by(rabbitmq_server, user_commands(rabbitmq_url, [ROLE, "other"])):
        yield
