"""What a template takes of the values that it is given: which of them, which parts, on which lines.

Imported only where a template is used: it brings jinja2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jinja2 import nodes

from agentq.protocol.template_sandbox import TemplateSandbox
from agentq.protocol.templates import guarded, is_template


class PathUsed(NamedTuple):
    """A use of one of the values that a template is given.

    `steps.plan.result` and `steps['plan'].result` are ("plan", "result") of `steps`. Only what is
    written out is part of it: `steps[x]` is ().
    """

    path: tuple[str, ...]
    line: int


class TemplateUses(NamedTuple):
    """The values that a template needs, and which parts of them it takes, by their names."""

    names: frozenset[str]
    paths: Mapping[str, list[PathUsed]]


def template_uses(text: str, where: str = "", *, expression: bool) -> TemplateUses:
    """What a template or an expression takes from its values; `Invalid` if it may not run."""
    if not expression and not is_template(text):
        return TemplateUses(frozenset(), {})

    def whole(box: TemplateSandbox) -> TemplateUses:
        tree = box.read(text, expression=expression)
        uses = _uses(tree)
        names = frozenset(box.free_names(tree))
        return TemplateUses(names, {name: uses[name] for name in uses if name in names})

    return guarded(where, expression, whole)


def _uses(tree: nodes.Template) -> dict[str, list[PathUsed]]:
    """Every name that is read, with what is taken of it, in the order of lines."""
    found: dict[str, list[PathUsed]] = {}
    pending: list[tuple[nodes.Node, tuple[str, ...]]] = [(tree, ())]
    while pending:
        node, path = pending.pop()
        if isinstance(node, nodes.Name) and node.ctx == "load":
            found.setdefault(node.name, []).append(PathUsed(path, node.lineno))
        part = _part_of(node)
        for child in node.iter_child_nodes():
            inside = isinstance(node, nodes.Getattr | nodes.Getitem) and child is node.node
            pending.append((child, (part, *path) if inside and part is not None else ()))
    return {name: sorted(uses, key=lambda use: use.line) for name, uses in found.items()}


def _part_of(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return str(node.arg.value)
    return None
