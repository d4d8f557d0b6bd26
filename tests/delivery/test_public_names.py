"""What stands before py-amqp's classes uses public names only: private ones change unannounced."""

from __future__ import annotations

import ast
import inspect

import amqp
import pytest
from amqp.transport import SSLTransport, TCPTransport

from agentq.delivery.rabbitmq import connection, wire

THEIRS = {
    name
    for kind in (amqp.Connection, amqp.Channel, TCPTransport, SSLTransport)
    for name in (*dir(kind), *kind.__init__.__code__.co_names)
    if name.startswith("_") and not name.endswith("__")
}


@pytest.mark.parametrize("module", [wire, connection])
def test_no_private_name_of_py_amqp_is_used(module: object) -> None:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert "_setup_transport" in THEIRS
    assert used & {*THEIRS, "_quick_recv"} == set()
