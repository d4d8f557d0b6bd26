"""The users that `agentq init --broker` prints commands for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from agentq.delivery.rabbitmq import declare, user_commands
from tests.delivery.letters import ROLE
from tests.servers.rabbitmq import RabbitServer

_MODULE = "rabbit_auth_backend_internal"


@pytest.fixture
def users(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Iterator[None]:
    """Everybody that the printed commands make, made by what those commands call."""
    declare(rabbitmq_url, [ROLE, "other"])
    made, calls = [], []
    for line in user_commands(rabbitmq_url, [ROLE, "other"]):
        words = shlex.split(line, comments=True)
        if not words or words[1] == "set_policy":
            continue
        if words[1] == "add_user":
            arguments = [words[2], "password", "tests"]
            made.append(words[2])
        else:
            assert words[2] == "-p"
            arguments = [words[4], words[3], *words[5:], "tests"]
        listed = ", ".join('<<"' + word.replace("\\", "\\\\") + '">>' for word in arguments)
        calls.append(f"{_MODULE}:{words[1]}({listed})")
    rabbitmq_server.call(*calls)
    yield
    rabbitmq_server.call(*(f'{_MODULE}:delete_user(<<"{user}">>, <<"tests">>)' for user in made))
