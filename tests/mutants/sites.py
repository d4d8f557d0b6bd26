"""Small wrongs that can be done to a module, one at a time, each at a place in its syntax tree.

Comparisons at their edge, `and` for `or`, a sum for a difference, a number off by one, a condition
turned round, an argument or a statement left out, nothing returned. What a message says is left
alone: no promise depends on its words.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_SUMS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True, slots=True)
class Site:
    """One change: where, what it does in words, and how to do it to the tree it was found in."""

    line: int
    what: str
    change: Callable[[], None]


def sites(tree: ast.Module) -> list[Site]:
    """Every change that can be made to this tree, always in the same order."""
    return list(_Finder().in_statements(tree.body))


def mutated(source: str, number: int) -> tuple[str, Site]:
    """The source with its n-th change made."""
    tree = ast.parse(source)
    site = sites(tree)[number]
    site.change()
    return ast.unparse(ast.fix_missing_locations(tree)), site


class _Finder:
    """Walks statements and the expressions that decide something; passes over words and types."""

    def in_statements(self, body: list[ast.stmt]) -> Iterator[Site]:
        for place, statement in enumerate(body):
            yield from self._of_statement(body, place, statement)

    def _of_statement(
        self, body: list[ast.stmt], place: int, statement: ast.stmt
    ) -> Iterator[Site]:
        if _is_words_or_types(statement):
            return
        if isinstance(statement, ast.FunctionDef):
            for default in (*statement.args.defaults, *statement.args.kw_defaults):
                if default is not None:
                    yield from self.in_expression(default)
            yield from self.in_statements(statement.body)
        elif isinstance(statement, ast.Raise):
            yield from _codes_of(statement)
        else:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                yield _dropped_statement(body, place, statement)
            if isinstance(statement, ast.Return) and statement.value is not None:
                yield from _nothing_returned(statement)
            if isinstance(statement, ast.If | ast.While):
                yield _turned_round(statement, "test", statement.test)
            yield from self._inside(statement)

    def _inside(self, statement: ast.stmt) -> Iterator[Site]:
        for name, value in ast.iter_fields(statement):
            if name in ("annotation", "decorator_list", "bases", "keywords", "msg", "targets"):
                continue
            if name in ("body", "orelse", "finalbody"):
                yield from self.in_statements(value)
            elif name == "handlers":
                for handler in value:
                    yield from self.in_statements(handler.body)
            elif isinstance(value, ast.expr):
                yield from self.in_expression(value)
            elif name == "items":
                for item in value:
                    yield from self.in_expression(item.context_expr)

    def in_expression(self, node: ast.expr) -> Iterator[Site]:
        if isinstance(node, ast.JoinedStr):
            return
        yield from _of_expression(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue
            if isinstance(child, ast.expr):
                yield from self.in_expression(child)
            elif isinstance(child, ast.keyword):
                yield from self.in_expression(child.value)
            elif isinstance(child, ast.comprehension):
                yield from self._in_comprehension(child)

    def _in_comprehension(self, node: ast.comprehension) -> Iterator[Site]:
        yield from self.in_expression(node.iter)
        for place, condition in enumerate(node.ifs):
            yield _turned_round_in(node.ifs, place, condition)
            yield from self.in_expression(condition)


def _of_expression(node: ast.expr) -> Iterator[Site]:
    """What can be done to the node itself, and not to what it is made of."""
    if isinstance(node, ast.Compare):
        yield from _other_comparisons(node)
    elif isinstance(node, ast.BoolOp):
        yield _other_connective(node)
    elif isinstance(node, ast.BinOp):
        yield from _other_sum(node)
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node)
    elif isinstance(node, ast.IfExp):
        yield _turned_round(node, "test", node.test)
    elif isinstance(node, ast.Call):
        yield from _left_out(node)


def _is_words_or_types(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:90]


def _codes_of(statement: ast.Raise) -> Iterator[Site]:
    """The code of an error is what programs go by; its words are for people."""
    call = statement.exc
    if isinstance(call, ast.Call):
        for keyword in call.keywords:
            if keyword.arg == "code":
                yield _argument_left_out(call, keyword)


def _dropped_statement(body: list[ast.stmt], place: int, statement: ast.Expr) -> Site:
    def change() -> None:
        body[place] = ast.Pass()

    return Site(statement.lineno, f"leave out {_shown(statement)}", change)


def _nothing_returned(statement: ast.Return) -> Iterator[Site]:
    value = statement.value
    if isinstance(value, ast.Constant) and not value.value:
        return  # nothing as well, to whoever asks whether it is

    def change() -> None:
        statement.value = ast.Constant(None)

    yield Site(statement.lineno, f"return None instead of {_shown(statement)[7:]}", change)


def _turned_round(holder: ast.AST, name: str, condition: ast.expr) -> Site:
    def change() -> None:
        setattr(holder, name, _denied(condition))

    return Site(condition.lineno, f"not: {_shown(condition)}", change)


def _turned_round_in(listed: list[ast.expr], place: int, condition: ast.expr) -> Site:
    def change() -> None:
        listed[place] = _denied(condition)

    return Site(condition.lineno, f"not: {_shown(condition)}", change)


def _denied(condition: ast.expr) -> ast.expr:
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return condition.operand
    return ast.UnaryOp(ast.Not(), condition)


def _other_comparisons(node: ast.Compare) -> Iterator[Site]:
    for place, operator in enumerate(node.ops):
        other = _COMPARISONS[type(operator)]

        def change(place: int = place, other: type[ast.cmpop] = other) -> None:
            node.ops[place] = other()

        yield Site(node.lineno, f"{other.__name__} in {_shown(node)}", change)


def _other_connective(node: ast.BoolOp) -> Site:
    other = ast.Or if isinstance(node.op, ast.And) else ast.And

    def change() -> None:
        node.op = other()

    return Site(node.lineno, f"{other.__name__} in {_shown(node)}", change)


def _other_sum(node: ast.BinOp) -> Iterator[Site]:
    other = _SUMS.get(type(node.op))
    if other is None or _is_text(node.left) or _is_text(node.right):
        return

    def change() -> None:
        node.op = other()

    yield Site(node.lineno, f"{other.__name__} in {_shown(node)}", change)


def _other_constants(node: ast.Constant) -> Iterator[Site]:
    value = node.value
    if isinstance(value, bool):
        others: tuple[object, ...] = (not value,)
    elif isinstance(value, int):
        others = (value + 1, value - 1)
    elif isinstance(value, float):
        others = (value + 1.0,)
    else:
        return
    for other in others:

        def change(other: object = other) -> None:
            node.value = other  # type: ignore[assignment]

        yield Site(node.lineno, f"{other} for {value} (column {node.col_offset})", change)


def _left_out(call: ast.Call) -> Iterator[Site]:
    for keyword in call.keywords:
        # `zip(…, strict=True)` says what holds anyway.
        if keyword.arg not in (None, "strict"):
            yield _argument_left_out(call, keyword)


def _argument_left_out(call: ast.Call, keyword: ast.keyword) -> Site:
    def change() -> None:
        call.keywords.remove(keyword)

    what = f"leave out {keyword.arg} of {_shown(call.func)}"
    return Site(keyword.value.lineno, f"{what} ({_shown(keyword.value)[:40]})", change)
