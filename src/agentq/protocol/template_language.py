"""The part of Jinja that templates are written in, checked and made countable before it runs.

Statements are output, if, for, set and with; there is nothing that defines, includes or repeats a
piece of template. What could take long or grow becomes a call of a bounded function: loops pay for
each round, comparisons and `~` for what they look at, and methods are filters of ours.

Imported only where a template is used: it brings jinja2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import reduce
from typing import TypeVar

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from agentq.protocol.template_data import TemplateFault
from agentq.protocol.template_filters import METHODS

#: How deep statements and expressions may nest, how many there may be, and loops in loops.
DEPTH_MAX = 40
NODES_MAX = 5_000
WORDS_MAX = 2 * NODES_MAX
LOOPS_MAX = 6

#: Names of functions that no template can spell.
CONCAT, COMPARE, EACH, KEY, PART = "!concat", "!compare", "!each", "!key", "!part"
KEEP, RANGE, NAMESPACE, METHOD = "!keep", "!range", "!namespace", "!."

_STATEMENTS = ("Output", "If", "For", "Assign", "With")
_EXPRESSIONS = (
    "Add", "And", "Call", "Compare", "Concat", "CondExpr", "Const", "Dict", "Div", "Filter",
    "FloorDiv", "Getattr", "Getitem", "Keyword", "List", "Mod", "Mul", "NSRef", "Name", "Neg",
    "Not", "Operand", "Or", "Pair", "Pos", "Pow", "Slice", "Sub", "TemplateData", "Test", "Tuple",
)  # fmt: skip
_ALLOWED = frozenset(("Template", *_STATEMENTS, *_EXPRESSIONS))
_NOT_FOR_TEMPLATES = frozenset(("self", "super", "caller", "varargs", "kwargs"))
_Made = TypeVar("_Made", bound=nodes.Node)


class Translation(NodeTransformer):
    """Turns a parsed template into one whose every step is bounded; refuses what is not allowed."""

    def __init__(self, filters: Iterable[str], tests: Iterable[str]) -> None:
        self._filters = filters
        self._tests = tests
        self._loops = 0

    def translate(self, template: nodes.Template) -> nodes.Template:
        translated: nodes.Template = self.visit(template)
        return translated

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (the visitor's own spelling)
        if node.recursive:
            raise TemplateFault("loops are not recursive", "Leave `recursive` out.", node.lineno)
        self._loops += 1
        if self._loops > LOOPS_MAX:
            raise TemplateFault(
                f"loops are nested deeper than {LOOPS_MAX}", "Flatten them.", node.lineno
            )
        steps = sum(1 for _ in _descendants(node))
        self.generic_visit(node)
        self._loops -= 1
        assert isinstance(node.iter, nodes.Expr)
        node.iter = _filter(node.iter, EACH, [nodes.Const(steps)])
        return node

    def visit_Name(self, node: nodes.Name) -> nodes.Node:  # noqa: N802
        _check_name(node.name, node.lineno)
        if node.name in _NOT_FOR_TEMPLATES:
            raise TemplateFault(
                f"{node.name!r} stands for a piece of template, and there are none here",
                "Use another name.",
                node.lineno,
            )
        return node

    def visit_Const(self, node: nodes.Const) -> nodes.Node:  # noqa: N802
        if isinstance(node.value, float) and not math.isfinite(node.value):
            raise TemplateFault("a number is too large", "Write a smaller one.", node.lineno)
        return node

    def visit_NSRef(self, node: nodes.NSRef) -> nodes.Node:  # noqa: N802
        _check_name(node.attr, node.lineno)
        return node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802
        _check_name(node.attr, node.lineno)
        return self.generic_visit(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        """`x[1:2]` becomes a call: Jinja would let Python do it, unasked."""
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        return _filter(node.node, PART, [each or nodes.Const(None) for each in bounds])

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        _check_known(node.name, self._filters, "filter", node.lineno)
        _check_arguments(node)
        return self.generic_visit(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        _check_known(node.name, self._tests, "test", node.lineno)
        _check_arguments(node)
        return self.generic_visit(node)

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _filter(node.key, KEY, [])
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(_at(node, nodes.List(node.nodes)), CONCAT, [])

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        """`a < b < c` becomes `a < b and b < c`, each a call."""
        self.generic_visit(node)
        left, pairs = node.expr, list[nodes.Expr]()
        for operand in node.ops:
            pairs.append(_filter(left, COMPARE, [nodes.Const(operand.op), operand.expr]))
            left = operand.expr
        return reduce(lambda one, other: _at(node, nodes.And(one, other)), pairs)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        """A method becomes the filter of its name; nothing else is called but two functions."""
        _check_arguments(node)
        self.generic_visit(node)
        called = node.node
        if isinstance(called, nodes.Getattr):
            _check_known(called.attr, METHODS, "method", node.lineno)
            _check_call(called.attr, not node.kwargs, node.lineno)
            return _filter(called.node, METHOD + called.attr, node.args)
        name = called.name if isinstance(called, nodes.Name) else ""
        if name == "range":
            _check_call(name, not node.kwargs and 1 <= len(node.args) <= 3, node.lineno)
            return _filter(node.args[0], RANGE, node.args[1:])
        _check_call(name, name == "namespace" and not node.args, node.lineno)
        return _filter(_at(node, nodes.Const(None)), NAMESPACE, [], node.kwargs)


def _check_call(name: str, fits: bool, line: int) -> None:
    if not fits:
        raise TemplateFault(
            f"{name[:60] or 'this'}() cannot be called like this",
            "There are methods such as inputs.name.split(','), range(1, 4) and namespace(total=0).",
            line,
        )


def check_shape(template: nodes.Template) -> None:
    """Refuse unknown kinds, and too many or too deep ones: before anything recurses into them."""
    level: list[nodes.Node] = [template]
    count = 0
    for _ in range(DEPTH_MAX):
        count += len(level)
        if not level:
            return
        if count > NODES_MAX:
            raise too_many_parts()
        for node in level:
            if type(node).__name__ not in _ALLOWED:
                raise _not_allowed(node)
        level = [child for node in level for child in node.iter_child_nodes()]
    line = level[0].lineno if level else 0
    raise TemplateFault(f"it is nested deeper than {DEPTH_MAX} levels", "Flatten it.", line)


def too_many_parts() -> TemplateFault:
    return TemplateFault(f"it has more than {NODES_MAX:,} parts", "Say less, or in more steps.")


def _not_allowed(node: nodes.Node) -> TemplateFault:
    word = {
        "AssignBlock": "{% set %} without =",
        "CallBlock": "{% call %}",
        "FilterBlock": "{% filter %}",
        "FromImport": "{% from %}",
        "ScopedEvalContextModifier": "{% autoescape %}",
    }.get(type(node).__name__, f"{{% {type(node).__name__.lower()} %}}")
    return TemplateFault(
        f"{word} is not available here",
        "Templates have {{ }}, {% if %}, {% for %}, {% set x = … %} and {% with %}.",
        node.lineno,
    )


def _descendants(node: nodes.Node) -> Iterator[nodes.Node]:
    for child in node.iter_child_nodes():
        yield child
        yield from _descendants(child)


def _check_name(name: str, line: int) -> None:
    if name.startswith("_"):
        raise TemplateFault(
            f"names that start with _ are not available, such as {name[:60]!r}",
            "Templates see data only.",
            line,
        )


def _check_known(name: str, known: Iterable[str], what: str, line: int) -> None:
    names = sorted(known)
    if name not in names:
        near = get_close_matches(name[:60], names, 1)
        remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(names)}."
        raise TemplateFault(f"there is no {what} {name[:60]!r}", remedy, line)


def _check_arguments(node: nodes.Filter | nodes.Test | nodes.Call) -> None:
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise TemplateFault(
            "* and ** are not available in a call", "Write its values out.", node.lineno
        )


def _filter(
    value: nodes.Expr, name: str, values: list[nodes.Expr], named: Sequence[nodes.Keyword] = ()
) -> nodes.Filter:
    return _at(value, nodes.Filter(value, name, values, list(named), None, None))


def _at(place: nodes.Node, made: _Made) -> _Made:
    made.set_lineno(place.lineno)
    return made


def kept(template: nodes.Template) -> nodes.Template:
    """A translated template of one expression, made to show nothing and to keep what it gives."""
    for output in template.find_all(nodes.Output):
        output.nodes = [_filter(node, KEEP, []) for node in output.nodes]
    return template
