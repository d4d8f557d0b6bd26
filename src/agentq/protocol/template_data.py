"""What templates may do with plain data, each bounded by a count of steps and a size.

A template comes from a file that somebody wrote, or an agent did; nothing it says may take long or
grow without end. There is no clock here, so that the same template fails the same way everywhere:
whatever looks at data pays for it in steps, and whatever makes a text says first how long it gets.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

STEPS_MAX = 100_000
#: The longest text that a template may make, be it on the way or as its output.
TEXT_CHARS_MAX = 64 * 1024
RANGE_MAX = 10_000
#: How deep lists and mappings may nest.
DATA_DEPTH_MAX = 32
NUMBER_BITS_MAX = 1024
#: So many characters cost as much as one step.
_CHARS_PER_STEP = 32


class TemplateFault(Exception):
    """What is wrong with a template, before it is known which template it was."""

    def __init__(self, problem: str, remedy: str = "", line: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy
        self.line = line


def kind_of(value: Any) -> str:
    """What people call such a value."""
    if value is None:
        return "nothing (none)"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, list | tuple):
        return "a list"
    return "a mapping" if isinstance(value, Mapping) else "no plain data"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float)


_CALCULATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}
COMPARISONS = (*_COMPARISONS, "in", "notin")


class PlainData:
    """The operations on plain data, and the steps that one rendering has left for them.

    `missing` is the class of what stands for a value that is not there; to ask for its text is an
    error that says so.
    """

    def __init__(self, missing: type) -> None:
        self.steps_left = STEPS_MAX
        self._missing = missing

    def is_missing(self, value: Any) -> bool:
        return isinstance(value, self._missing)

    def spend(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise TemplateFault(
                f"it takes more than {STEPS_MAX:,} steps",
                "Loop over less: a loop within a loop multiplies.",
            )

    def spend_for(self, *values: Any) -> None:
        """Pay for looking through these values as a whole, and refuse what is no plain data."""
        level = list(values)
        for _ in range(DATA_DEPTH_MAX):
            if not level:
                return
            level = [inner for value in level for inner in self._inside(value)]
        raise TemplateFault(
            f"lists and mappings are nested deeper than {DATA_DEPTH_MAX} levels", "Flatten them."
        )

    def _inside(self, value: Any) -> Sequence[Any]:
        if isinstance(value, str):
            self.spend(1 + len(value) // _CHARS_PER_STEP)
            return ()
        if isinstance(value, list | tuple):
            self.spend(1 + len(value))
            return value
        if isinstance(value, Mapping):
            self.spend(1 + 2 * len(value))
            return (*value, *value.values())
        self.spend(1)
        if self.is_missing(value):
            str(value)  # fails, except for an inline `if` without `else`: that shows nothing
        elif isinstance(value, int):
            _check_bits(value.bit_length())
        elif value is not None and not isinstance(value, float):
            raise TemplateFault(
                f"{type(value).__name__} is no plain data",
                "Use texts, numbers, lists and mappings; a function needs its ().",
            )
        return ()

    # ---- texts ---------------------------------------------------------------------------------

    def as_text(self, value: Any) -> str:
        """What `{{ value }}` shows."""
        self.spend_for(value)
        return value if isinstance(value, str) else _bounded(str(value))

    def concat(self, parts: Sequence[Any]) -> str:
        """What `a ~ b ~ c` gives."""
        return self.join_texts("", [self.as_text(part) for part in parts])

    def join_texts(self, separator: str, texts: Sequence[str]) -> str:
        for text in (separator, *texts):
            _expect_text(text)
        length = sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0)
        self.spend(1 + len(texts) + _check_length(length) // _CHARS_PER_STEP)
        return separator.join(texts)

    def replace(self, text: str, old: str, new: str) -> str:
        for part in (text, old, new):
            _expect_text(part)
        self.spend_for(text, new)
        length = len(text) + text.count(old) * (len(new) - len(old))
        _check_length(length)
        return text.replace(old, new)

    def to_json(self, value: Any, indent: Any = None) -> str:
        self.spend_for(value)
        if indent is not None and not (isinstance(indent, int) and 0 <= indent <= 8):
            raise TemplateFault("tojson is indented by 0 to 8 spaces", "Write tojson(2).")
        return _bounded(json.dumps(self._copy(value), ensure_ascii=False, indent=indent))

    # ---- operators -----------------------------------------------------------------------------

    def calculate(self, sign: str, left: Any, right: Any) -> Any:
        """What `left + right` and the like give."""
        self.spend(1)
        if is_number(left) and is_number(right):
            _check_number(sign, left, right)
            return _CALCULATIONS[sign](left, right)
        if sign == "+" and isinstance(left, str) and isinstance(right, str):
            return self.join_texts("", (left, right))
        if sign == "+" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
            self.spend((len(left) + len(right)) // _CHARS_PER_STEP)
            return [*left, *right]
        if sign == "*" and isinstance(left, str) and isinstance(right, int):
            self.spend(_check_length(len(left) * right) // _CHARS_PER_STEP)
            return left * right
        self.spend_for(left, right)  # says what is not there at all
        raise TemplateFault(
            f"{sign} does not go between {kind_of(left)} and {kind_of(right)}",
            "Join texts with ~, and make a text a number with |int or |float.",
        )

    def compare(self, word: str, left: Any, right: Any) -> bool:
        """What `left == right`, `left in right` and the like give."""
        self.spend_for(left, right)
        if word in ("in", "notin"):
            return _contains(right, left) is (word == "in")
        try:
            return bool(_COMPARISONS[word](left, right))
        except TypeError:
            raise TemplateFault(
                f"{kind_of(left)} and {kind_of(right)} have no order",
                "Compare numbers with numbers; make a text a number with |int or |float.",
            ) from None

    # ---- lists and mappings --------------------------------------------------------------------

    def items_of(self, value: Any) -> Sequence[Any]:
        """What a loop goes through: the items of a list, the keys of a mapping, characters."""
        if isinstance(value, list | tuple | str | Mapping):
            self.spend(1 + len(value) // _CHARS_PER_STEP)
            return value if isinstance(value, list | tuple) else list(value)
        self.spend_for(value)
        raise TemplateFault(f"{kind_of(value)} has no items to go through", "Give a list.")

    def each(self, value: Any, body_steps: int) -> Iterator[Any]:
        """The items of a loop; each pays for the whole body, whatever that does."""
        self.spend(1)
        for item in self.items_of(value):
            self.spend(body_steps)
            yield item

    def number_range(self, *bounds: Any) -> list[int]:
        self.spend(1)
        if not all(isinstance(bound, int) for bound in bounds):
            raise TemplateFault("range takes whole numbers", "Make a text a number with |int.")
        numbers = range(*bounds)
        # The length of a long one does not fit into what len() gives.
        if bool(numbers[RANGE_MAX : RANGE_MAX + 1]):
            raise TemplateFault(f"range gives at most {RANGE_MAX:,} numbers", "Ask for fewer.")
        self.spend(len(numbers) // 8)
        return list(numbers)

    def mapping_key(self, key: Any) -> str:
        """The key of a mapping that a template writes."""
        _expect_text(key, "text as the key of a mapping")
        return str(key)

    def look_up(self, holder: Any, key: Any) -> Any:
        """The item of a list, text or mapping; raises `LookupError` if there is none."""
        self.spend(1)
        if isinstance(holder, Mapping) and isinstance(key, str):
            self.spend(len(key) // _CHARS_PER_STEP)
            # A name with a dash is no name in an expression: build_ui stands for build-ui.
            return holder[key] if key in holder else holder[key.replace("_", "-")]
        if isinstance(holder, str | list | tuple) and isinstance(key, int):
            return holder[key]
        raise LookupError

    def part(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """What `value[start:stop:step]` gives."""
        if not isinstance(value, str | list | tuple):
            self.spend_for(value)
            raise TemplateFault(f"{kind_of(value)} has no parts", "Take them of a list or a text.")
        self.spend(1 + len(value) // _CHARS_PER_STEP)
        return value[start:stop:step]

    def copied(self, value: Any) -> Any:
        """The value as plain JSON data that shares nothing with what the template was given."""
        self.spend_for(value)
        return self._copy(value)

    def _copy(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._copy(item) for item in value]
        if isinstance(value, Mapping):
            return {key: self._copy(item) for key, item in value.items()}
        if isinstance(value, float) and not math.isfinite(value):
            raise TemplateFault(f"it gives {value}, which is no number", "Mend the calculation.")
        return None if self.is_missing(value) else value


def _contains(holder: Any, value: Any) -> bool:
    if isinstance(holder, Mapping):
        return isinstance(value, str) and value in holder
    if isinstance(holder, str):
        return isinstance(value, str) and value in holder
    if isinstance(holder, list | tuple):
        return value in holder
    raise TemplateFault(
        f"`in` looks into a list, a text or a mapping, not into {kind_of(holder)}",
        "Write it like: 'word' in inputs.text",
    )


def _expect_text(value: Any, words: str = "text") -> None:
    if not isinstance(value, str):
        raise TemplateFault(f"expected {words}, got {kind_of(value)}", "Use |string or ~.")


def _bounded(text: str) -> str:
    _check_length(len(text))
    return text


def _check_length(length: int) -> int:
    if length > TEXT_CHARS_MAX:
        raise TemplateFault(
            f"it makes a text of more than {TEXT_CHARS_MAX:,} characters",
            "Name a file or an artifact instead of quoting it.",
        )
    return max(length, 0)


def _check_number(sign: str, left: Any, right: Any) -> None:
    """Refuse, before it is calculated, what would not fit on a page."""
    if isinstance(left, float) or isinstance(right, float):
        return
    bits, others = left.bit_length(), right.bit_length()
    if sign == "**":
        _check_bits(bits * abs(right) if bits > 1 else bits)
    else:
        _check_bits(bits + others if sign == "*" else max(bits, others))


def _check_bits(bits: int) -> None:
    if bits > NUMBER_BITS_MAX:
        raise TemplateFault("a number gets too large", "Calculate with smaller numbers.")
