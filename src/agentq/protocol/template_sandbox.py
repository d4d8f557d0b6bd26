"""The sandbox that one template runs in: made for it, with its own count of steps, then dropped.

Jinja's own sandbox stands behind it, but is asked for little: attributes are looked up in plain
data only, operators, loops and methods are bounded functions, and no value is ever called.
Imported only where a template is used: it brings jinja2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, meta, nodes
from jinja2.environment import Template
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.runtime import LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from agentq.protocol import template_language as language
from agentq.protocol.template_data import TEXT_CHARS_MAX, PlainData, TemplateFault, kind_of
from agentq.protocol.template_filters import METHODS, TemplateFunctions

_LOOP = (
    "index",
    "index0",
    "revindex",
    "revindex0",
    "first",
    "last",
    "length",
    "previtem",
    "nextitem",
)
FILE = "<agentq template>"


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """One template or expression: parsed, checked, and run at most once."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        self.data = PlainData(Undefined)
        super().__init__(
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            optimized=False,
            cache_size=0,
            finalize=self.data.as_text,
        )
        functions = TemplateFunctions(self.data)
        self._filter_names, self._test_names = functions.filters, functions.tests
        self._kept: Any = None
        self.filters = {
            **functions.filters,
            **{language.METHOD + name: functions.method(name) for name in METHODS},
            language.CONCAT: self.data.concat,
            language.COMPARE: lambda left, word, right: self.data.compare(word, left, right),
            language.EACH: self.data.each,
            language.KEY: self.data.mapping_key,
            language.PART: self.data.part,
            language.KEEP: self._keep,
            language.RANGE: self.data.number_range,
            language.NAMESPACE: lambda _, **values: Namespace(values),
        }
        self.tests = dict(functions.tests)
        self.globals = {}

    # ---- reading -------------------------------------------------------------------------------

    def read(self, text: str, *, expression: bool) -> nodes.Template:
        """The text as a tree, before it is judged."""
        if len(text) > TEXT_CHARS_MAX:
            raise TemplateFault(
                f"it has more than {TEXT_CHARS_MAX:,} characters", "Put long text into a file."
            )
        tree = self._expression(text) if expression else self.parse(text)
        language.check_shape(tree)
        return tree

    def _tokenize(self, source: str, name: Any, filename: Any = None, state: Any = None) -> Any:
        """What the parser reads; it stops where there is too much for any template."""
        words = self.lexer.tokenize(source, name, filename, state)
        return TokenStream(_not_too_many(words), name, filename)

    def _expression(self, text: str) -> nodes.Template:
        parser = Parser(self, text, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            after = parser.stream.current
            raise TemplateSyntaxError(f"{after} comes after the end", after.lineno)
        output = nodes.Output([tree], lineno=tree.lineno)
        return nodes.Template([output], lineno=tree.lineno)

    def bounded(self, tree: nodes.Template) -> nodes.Template:
        """The tree, with a bounded function wherever something could take long."""
        translation = language.Translation(self._filter_names, self._test_names)
        translated = translation.translate(tree)
        translated.set_environment(self)
        return translated

    def compiled(self, tree: nodes.Template, *, expression: bool) -> Template:
        """The tree, ready to run."""
        bounded = self.bounded(tree)
        if expression:
            language.kept(bounded).set_environment(self)
        code = self.compile(bounded, filename=FILE)
        return self.template_class.from_code(self, code, self.globals)

    def free_names(self, tree: nodes.Template) -> set[str]:
        """The names that the tree expects to be given."""
        return meta.find_undeclared_variables(self.bounded(tree))

    # ---- running -------------------------------------------------------------------------------

    def run(self, template: Template, values: Mapping[str, Any]) -> str:
        pieces, length = list[str](), 0
        for piece in template.root_render_func(template.new_context(dict(values))):
            length += len(piece.encode("utf-8", "replace"))
            if length > TEXT_CHARS_MAX:
                raise TemplateFault(
                    f"it gives more than {TEXT_CHARS_MAX:,} bytes of text",
                    "Name a file or an artifact instead of quoting it.",
                )
            pieces.append(piece)
        return "".join(pieces)

    def value_of(self, template: Template, values: Mapping[str, Any]) -> Any:
        self.run(template, values)
        return self._kept

    def _keep(self, value: Any) -> str:
        self._kept = self.data.copied(value)
        return ""

    # ---- what Jinja asks of a sandbox ----------------------------------------------------------

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        if isinstance(obj, Namespace):
            return getattr(obj, attribute, self.undefined(name=attribute))
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Undefined):
            str(obj)  # says what is missing
        try:
            return self.data.look_up(obj, argument)
        except LookupError:
            return self.undefined(hint=_nothing_there(obj, argument))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        return self.data.calculate(operator, left, right)


def _not_too_many(words: Iterable[Token]) -> Iterator[Token]:
    for count, word in enumerate(words):
        if count > language.WORDS_MAX:
            raise language.too_many_parts()
        yield word


def _nothing_there(holder: Any, key: Any) -> str:
    shown = repr(key)[:60] if isinstance(key, str | int) else "that"
    if isinstance(holder, Mapping):
        there = ", ".join(sorted(str(name)[:40] for name in islice(holder, 12)))
        return f"there is no {shown}; there is {there or 'nothing'}"
    if isinstance(holder, list | tuple):
        return f"a list of {len(holder)} has no {shown}"
    return f"{kind_of(holder)} has no {shown}"
