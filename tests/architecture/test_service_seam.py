"""Who stands above the ledger asks its service, and knows no way around it."""

from __future__ import annotations

import ast

from tests.architecture.files import python_files
from tests.architecture.test_source_rules import assert_none

#: Packages that speak to `contracts.service` and to nothing below it.
ABOVE = ("src/agentq/cli", "src/agentq/daemon", "src/agentq/worker", "src/agentq/client")

#: What lies below: the ledger with its store and its views, and wiring's bundle of all of them.
BELOW = {"store", "views", "ledger", "parts"}
MODULES_BELOW = ("agentq.ledger", "agentq.stores", "agentq.contracts.store")


def reached_through(tree: ast.Module) -> list[tuple[int, str]]:
    """Attributes that lead past the service. One that is called is a verb: `evidence.store(…)`."""
    verbs = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return sorted(
        (node.lineno, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and id(node) not in verbs
        and node.attr.lstrip("_") in BELOW
    )


def test_nobody_above_the_service_reaches_through_it() -> None:
    broken = [
        f"{file}:{line} .{name}"
        for file in python_files(*ABOVE)
        for line, name in reached_through(file.tree)
    ]
    assert_none(broken, "Ask the service (contracts.service): it knows who asks, and decides.")


def test_nobody_above_the_service_imports_what_is_below_it() -> None:
    """Also not for the sake of a type: what the service answers with has types of its own."""
    broken = [
        f"{file}:{line} {name}"
        for file in python_files(*ABOVE)
        for line, name in file.imports()
        if any(name == below or name.startswith(f"{below}.") for below in MODULES_BELOW)
    ]
    assert_none(broken, "The types of contracts.service_values stand for those of the store.")


def test_the_rule_sees_what_it_forbids() -> None:
    text = "queue.store.read(f)\nself._parts = parts\nevidence.store(b)\nqueue.service.now()\n"
    assert reached_through(ast.parse(text)) == [(1, "store"), (2, "_parts")]


def test_the_store_has_few_verbs() -> None:
    """Whoever writes another adapter reads them in one sitting."""
    (file,) = [
        each for each in python_files("src/agentq/contracts") if each.name.endswith("/store.py")
    ]
    verbs = {
        item.name
        for node in file.tree.body
        if isinstance(node, ast.ClassDef) and node.name in ("Reader", "Tx", "Store")
        for item in node.body
        if isinstance(item, ast.FunctionDef)
    }
    assert 40 <= len(verbs) <= 45, sorted(verbs)
