"""The filters, tests and methods that templates have: a short list, each bounded.

Methods of texts, lists and mappings are the same functions by another spelling: `x.upper()` is
`x|upper`. None of them reaches a method of Python that is not named here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentq.protocol.template_data import (
    COMPARISONS,
    TEXT_CHARS_MAX,
    PlainData,
    TemplateFault,
    is_number,
    kind_of,
)

_TEXT_METHODS = (
    "capitalize", "count", "endswith", "find", "lower", "lstrip", "removeprefix", "removesuffix",
    "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
)  # fmt: skip
#: Methods as they are called on a value, which are filters of the same or of another name here.
METHODS = (*_TEXT_METHODS, "get", "items", "join", "keys", "replace", "values")

#: Tests that compare with another value, by all the names that Jinja has for them.
_COMPARING = {
    **{word: word for word in COMPARISONS if word != "notin"},
    "==": "eq", "equalto": "eq", "!=": "ne", "<": "lt", "lessthan": "lt", "<=": "lteq",
    "le": "lteq", ">": "gt", "greaterthan": "gt", ">=": "gteq", "ge": "gteq",
}  # fmt: skip
_KINDS: dict[str, Callable[[Any], bool]] = {
    "none": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "true": lambda value: value is True,
    "false": lambda value: value is False,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float),
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "mapping": lambda value: isinstance(value, Mapping),
    "sequence": lambda value: isinstance(value, list | tuple | str),
    "iterable": lambda value: isinstance(value, list | tuple | str | Mapping),
}

Function = Callable[..., Any]


class TemplateFunctions:
    """Filters, tests and methods over the data of one rendering."""

    def __init__(self, data: PlainData) -> None:
        self._data = data
        self.filters: dict[str, Function] = self._filters()
        self.tests: dict[str, Function] = self._tests()

    def method(self, name: str) -> Function:
        """The function that `value.name(…)` calls."""
        if name in _TEXT_METHODS:
            return self._text_method(name)
        own: dict[str, Function] = {
            "get": self._get,
            "items": self._items,
            "join": lambda separator, texts: self._data.join_texts(
                separator, self._data.items_of(texts)
            ),
            "keys": lambda mapping: list(self._mapping(mapping)),
            "replace": self._data.replace,
            "values": lambda mapping: list(self._mapping(mapping).values()),
        }
        return own[name]

    def _filters(self) -> dict[str, Function]:
        data = self._data
        filters: dict[str, Function] = {
            **{name: self._text_method(name) for name in ("capitalize", "lower", "title", "upper")},
            "abs": lambda number: abs(self._number(number)),
            "default": self._default,
            "first": lambda values: self._end(values, 0),
            "float": lambda value, default=0.0: self._converted(float, value, default),
            "fromjson": self._from_json,
            "indent": self._indent,
            "int": lambda value, default=0: self._converted(int, value, default),
            "items": self._items,
            "join": self._join,
            "last": lambda values: self._end(values, -1),
            "length": self._length,
            "list": lambda values: list(data.items_of(values)),
            "map": self._map,
            "max": lambda values, attribute=None: self._end(self._sorted(values, attribute), -1),
            "min": lambda values, attribute=None: self._end(self._sorted(values, attribute), 0),
            "reject": lambda values, *test: self._chosen(values, None, test, keep=False),
            "rejectattr": lambda values, name, *test: self._chosen(values, name, test, keep=False),
            "replace": data.replace,
            "reverse": lambda values: data.items_of(values)[::-1],
            "round": self._round,
            "select": lambda values, *test: self._chosen(values, None, test, keep=True),
            "selectattr": lambda values, name, *test: self._chosen(values, name, test, keep=True),
            "sort": lambda values, reverse=False, attribute=None: self._sorted(
                values, attribute, reverse=bool(reverse)
            ),
            "string": data.as_text,
            "sum": self._sum,
            "tojson": data.to_json,
            "trim": self._text_method("strip"),
            "truncate": self._truncate,
            "unique": self._unique,
            "wordcount": lambda text: len(self._text_method("split")(text)),
        }
        return {**filters, "d": filters["default"], "count": filters["length"]}

    def _tests(self) -> dict[str, Function]:
        def comparing(word: str) -> Function:
            return lambda value, other: self._data.compare(word, value, other)

        def of_kind(holds: Callable[[Any], bool]) -> Function:
            def test(value: Any) -> bool:
                self._data.spend(1)
                return holds(self._present(value))

            return test

        return {
            **{name: comparing(word) for name, word in _COMPARING.items()},
            **{name: of_kind(holds) for name, holds in _KINDS.items()},
            "defined": lambda value: not self._data.is_missing(value),
            "undefined": self._data.is_missing,
            "odd": lambda value: self._number(value) % 2 == 1,
            "even": lambda value: self._number(value) % 2 == 0,
            "divisibleby": lambda value, by: self._number(value) % self._number(by) == 0,
        }

    # ---- what they are given -------------------------------------------------------------------

    def _present(self, value: Any) -> Any:
        if self._data.is_missing(value):
            self._data.spend_for(value)  # says what is missing
        return value

    def _number(self, value: Any) -> Any:
        self._data.spend_for(self._present(value))
        if not is_number(value):
            raise TemplateFault(
                f"expected a number, got {kind_of(value)}", "Make it one with |int or |float."
            )
        return value

    def _mapping(self, value: Any) -> Mapping[str, Any]:
        mapping = _check_mapping(self._present(value))
        self._data.spend(1 + len(mapping))
        return mapping

    def _scalars(self, values: Sequence[Any]) -> None:
        """What can be put in an order, or be told apart, at a glance."""
        for value in values:
            if not isinstance(self._present(value), str | int | float):
                raise TemplateFault(
                    f"expected texts or numbers, got {kind_of(value)}",
                    "Say which part of it counts: attribute='name'.",
                )

    def _part(self, value: Any, attribute: Any) -> Any:
        """`a.b` of a value, for the filters that take attribute='a.b'."""
        if attribute is None:
            return value
        if not isinstance(attribute, str):
            raise TemplateFault("an attribute is a text", "Write it like attribute='score'.")
        for name in attribute.split("."):
            try:
                value = self._data.look_up(value, int(name) if name.isdecimal() else name)
            except LookupError:
                raise TemplateFault(
                    f"an item has no {name!r}", "Check the name, or choose the items first."
                ) from None
        return value

    # ---- what they do --------------------------------------------------------------------------

    def _text_method(self, name: str) -> Function:
        def call(value: Any, *given: Any) -> Any:
            if name == "count" and isinstance(value, list | tuple):
                self._data.spend_for(value, *given)
                return value.count(*given)
            if not isinstance(self._present(value), str):
                raise TemplateFault(
                    f"{name} is for texts, and this is {kind_of(value)}", "Use |string before it."
                )
            for each in given:
                if not isinstance(self._present(each), str | int):
                    raise TemplateFault(f"{name} takes a text, got {kind_of(each)}", "Mend it.")
            self._data.spend_for(value)
            made = getattr(value, name)(*given)
            if isinstance(made, list):
                self._data.spend(len(made))
            return made

        return call

    def _get(self, mapping: Any, key: Any, default: Any = None) -> Any:
        _check_mapping(self._present(mapping))
        try:
            return self._data.look_up(mapping, key)
        except LookupError:
            return default

    def _items(self, mapping: Any) -> list[Any]:
        return [list(item) for item in self._mapping(mapping).items()]

    def _default(self, value: Any, default: Any = "", boolean: Any = False) -> Any:
        if self._data.is_missing(value) or (boolean and not value):
            return default
        return value

    def _end(self, values: Any, place: int) -> Any:
        items = self._data.items_of(values)
        if not items:
            raise TemplateFault("an empty list has no such item", "Ask {% if list %} first.")
        return items[place]

    def _length(self, value: Any) -> int:
        self._data.spend(1)
        if isinstance(self._present(value), str | list | tuple | Mapping):
            return len(value)
        raise TemplateFault(f"{kind_of(value)} has no length", "Ask for that of a list or text.")

    def _converted(self, kind: type, value: Any, default: Any) -> Any:
        self._data.spend_for(self._present(value))
        try:
            whole = kind is int and not isinstance(value, int) and not str(value).isdecimal()
            return int(float(value)) if whole else kind(value)
        except (ValueError, TypeError, OverflowError):
            return default

    def _round(self, number: Any, digits: Any = 0) -> Any:
        if not isinstance(digits, int) or not 0 <= digits <= 15:
            raise TemplateFault("round takes 0 to 15 digits", "Write round(2).")
        return round(self._number(number), digits)

    def _from_json(self, text: Any) -> Any:
        if not isinstance(self._present(text), str):
            raise TemplateFault(f"fromjson reads a text, got {kind_of(text)}", "Leave it out.")
        self._data.spend_for(text)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TemplateFault(
                f"this text is no JSON: {str(error)[:80]}", "Does the step before write JSON?"
            ) from None
        return self._data.copied(value)

    def _indent(self, text: Any, width: Any = 4, first: Any = False) -> str:
        self._text_method("strip")(text)
        if not isinstance(width, int) or not 0 <= width <= 40:
            raise TemplateFault("indent takes 0 to 40 spaces", "Write indent(4).")
        indented: str = self._data.replace(text, "\n", "\n" + " " * width)
        return self._data.join_texts("", (" " * width if first else "", indented))

    def _truncate(self, text: Any, length: Any = 255) -> str:
        self._text_method("strip")(text)
        if not isinstance(length, int) or not 1 <= length <= TEXT_CHARS_MAX:
            raise TemplateFault("truncate takes a length from 1", "Write truncate(200).")
        return text if len(text) <= length else f"{text[: length - 1]}…"

    def _join(self, values: Any, separator: Any = "", attribute: Any = None) -> str:
        items = self._data.items_of(values)
        self._data.spend(len(items))
        texts = [self._data.as_text(self._part(item, attribute)) for item in items]
        return self._data.join_texts(separator, texts)

    def _map(self, values: Any, *call: Any, attribute: Any = None, default: Any = None) -> Any:
        items = self._data.items_of(values)
        self._data.spend(len(items))
        if attribute is not None:
            if default is None:
                return [self._part(item, attribute) for item in items]
            return [self._get(item, attribute, default) for item in items]
        function = _named(self.filters, call, "map", "filter")
        return [function(item, *call[1:]) for item in items]

    def _chosen(self, values: Any, attribute: Any, test: tuple[Any, ...], *, keep: bool) -> Any:
        items = self._data.items_of(values)
        self._data.spend(len(items))
        holds = _named(self.tests, test, "select", "test") if test else bool
        return [
            item for item in items if bool(holds(self._part(item, attribute), *test[1:])) is keep
        ]

    def _sorted(self, values: Any, attribute: Any, *, reverse: bool = False) -> list[Any]:
        items = self._data.items_of(values)
        self._data.spend(4 * len(items))
        keys = [self._part(item, attribute) for item in items]
        self._scalars(keys)
        self._data.spend_for(keys)
        if len({isinstance(key, str) for key in keys}) > 1:
            raise TemplateFault("texts and numbers have no common order", "Use |map('string').")
        places = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
        return [items[place] for place in places]

    def _sum(self, values: Any, attribute: Any = None, start: Any = 0) -> Any:
        total = self._number(start)
        for item in self._data.items_of(values):
            total = self._data.calculate("+", total, self._number(self._part(item, attribute)))
        return total

    def _unique(self, values: Any, attribute: Any = None) -> list[Any]:
        items = self._data.items_of(values)
        keys = [self._part(item, attribute) for item in items]
        self._scalars(keys)
        self._data.spend_for(keys)
        first = dict(zip(reversed(keys), reversed(items), strict=True))
        return [first[key] for key in dict.fromkeys(keys)]


def _check_mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TemplateFault(f"expected a mapping, got {kind_of(value)}", "Name a mapping.")
    return value


def _named(known: Mapping[str, Function], call: tuple[Any, ...], user: str, what: str) -> Function:
    name = call[0] if call else ""
    if not isinstance(name, str) or name not in known:
        shown = repr(name[:40]) if isinstance(name, str) else kind_of(name)
        raise TemplateFault(
            f"{user} takes the name of a {what}, got {shown}",
            f"There are: {', '.join(sorted(known))}.",
        )
    return known[name]
