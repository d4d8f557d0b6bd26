"""Templates: the part of Jinja that workflow files are written in does what people expect of it."""

from __future__ import annotations

import pickle
from types import MappingProxyType
from typing import Any

import pytest

from agentq.core.errors import Invalid
from agentq.protocol.template_uses import PathUsed, template_uses
from agentq.protocol.templates import (
    BadTemplate,
    attributes_used,
    check_expression,
    check_template,
    evaluate,
    is_template,
    names_used,
    render,
)

VALUES: dict[str, Any] = {
    "inputs": {
        "env": "prod",
        "words": ["b", "a", "b"],
        "target-branch": "main",
        "n": 3,
        "no": None,
    },
    "steps": {"review": {"results": [{"score": 70, "by": "x"}, {"score": 90, "by": "y"}]}},
    "text": "one\ntwo\nthree",
    "item": "src/a.py",
    "index": 0,
    "read_only": MappingProxyType({"a": 1}),
}


def test_text_without_templates_stays_as_it_is() -> None:
    assert not is_template("100 % of {it}")
    assert render("100 % of {it}\n", VALUES) == "100 % of {it}\n"
    assert is_template("{{ x }}") and is_template("{% if x %}{% endif %}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Deploy {{ inputs.env|upper }}\n", "Deploy PROD\n"),
        ("{% if inputs.env == 'prod' %}careful{% else %}go{% endif %}", "careful"),
        ("{% for w in inputs.words %}{{ loop.index }}{{ w }}{% endfor %}", "1b2a3b"),
        (
            "{% for w in inputs.words if w != 'a' %}{{ w }}{{ loop.last }}{% endfor %}",
            "bFalsebTrue",
        ),
        ("{% for w in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for k, v in inputs.items() %}{{ k }} {% endfor %}", "env words target-branch n no "),
        ("{% for c in 'ab' %}{{ c }}.{% endfor %}", "a.b."),
        ("{% for k in {'x': 1} %}{{ k }}{% endfor %}", "x"),
        ("{% set a, b = [1, 2] %}{{ a + b }}", "3"),
        ("{% with x = 5 %}{{ x }}{% endwith %}", "5"),
        (
            "{% set s = namespace() %}{% for i in [1, 5] %}{% set s.n = i %}{% endfor %}{{ s.n }}",
            "5",
        ),
        ("{{ 'yes' if inputs.no }}|", "|"),
        ("{{ inputs.target_branch }} {{ inputs['target-branch'] }}", "main main"),
        (
            "{{ inputs.absent|default('none given') }}{{ inputs.no|d('-', true) }}{{ 1|d(2) }}",
            "none given-1",
        ),
        ("{{ inputs.get('absent') }} {{ inputs.get('n', 1) }} {{ inputs.get(3) }}", "None 3 None"),
        ("{{ steps.review.results[-1].score }}", "90"),
        ("{{ steps.review.results|map(attribute='score')|max }}", "90"),
        ("{{ steps.review.results|selectattr('score', 'gt', 80)|map(attribute='by')|first }}", "y"),
        ("{{ steps.review.results|rejectattr('score', '>', 80)|length }}", "1"),
        ("{{ steps.review.results|sum(attribute='score') / 2 }}", "80.0"),
        ("{{ (steps.review.results|sort(attribute='score', reverse=true))[0].by }}", "y"),
        ("{{ steps.review.results|map(attribute='cost', default=0)|join(',') }}", "0,0"),
        ("{{ steps.review.results|join('+', attribute='by') }}", "x+y"),
        ("{{ inputs.words|unique|sort|join(', ') }}", "a, b"),
        ("{{ inputs.words|map('upper')|list }}", "['B', 'A', 'B']"),
        ("{{ [0, 1, 2]|select|list }}{{ [0, 1, 2]|reject('odd')|list }}", "[1, 2][0, 2]"),
        (
            "{{ [3, 1]|sort }}{{ [3, 1]|min }}{{ [1, 2]|reverse }}{{ [1, 2]|last }}",
            "[1, 3]1[2, 1]2",
        ),
        ("{{ text.splitlines()|length }} {{ text.split('\\n', 1)[0] }}", "3 one"),
        (
            "{{ ','.join(['a', 'b']) }} {{ 'aXb'.replace('X', '-') }} {{ 'aa'.count('a') }}",
            "a,b a-b 2",
        ),
        ("{{ ['a', 'a'].count('a') }}{{ {'k': 1}.keys() }}{{ {'k': 1}.values() }}", "2['k'][1]"),
        ("{{ ' x '.strip() }}{{ ' x '|trim }}{{ 'x y'|title }}{{ 'a b'|wordcount }}", "xxX Y2"),
        ("{{ 'src/a.py'.startswith('src/') and item.endswith('.py') }}", "True"),
        ("{{ 'a\\nb'|indent(2) }}", "a\n  b"),
        ("{{ 'a\\nb'|indent(2, true) }}", "  a\n  b"),
        ("{{ 'abcdef'|truncate(3) }}{{ 'abc'|truncate }}", "ab…abc"),
        ("{{ {'a': [1, none, 'ü']}|tojson }}", '{"a": [1, null, "ü"]}'),
        ("{{ [1]|tojson(2) }}", "[\n  1\n]"),
        ("{{ ('[1, {\"a\": 2}]'|fromjson)[1].a }}", "2"),
        (
            "{{ '42'|int + 1 }} {{ 'x'|int(7) }} {{ '3.9'|int }} {{ 2.5|int }} {{ 5|int }}",
            "43 7 3 2 5",
        ),
        ("{{ '1.5'|float }} {{ none|float }} {{ 'inf'|int }}", "1.5 0.0 0"),
        ("{{ -3|abs }}{{ 2.567|round(1) }}{{ 5|string ~ 5 }}", "32.655"),
        (
            "{{ 7 // 2 }}{{ 7 % 2 }}{{ 2 ** 3 }}{{ 7 - 2 }}{{ 2 * 3 }}{{ 1.5 * 2 }}{{ +1 }}",
            "318563.01",
        ),
        (
            "{{ 0 ** 0 }}{{ 1 ** 999999 }}{{ '-' * 3 }}{{ 'a' + 'b' }}{{ [1] + [2] }}",
            "11---ab[1, 2]",
        ),
        (
            "{{ 1 < 2 <= 2 }}{{ 1 in [1] }}{{ 'x' not in 'abc' }}{{ 'env' in inputs }}",
            "TrueTrueTrueTrue",
        ),
        ("{{ 5 in inputs }}{{ 5 in 'abc' }}{{ not 1 }}{{ 2 > 1 or 1 > 2 }}", "FalseFalseFalseTrue"),
        ("{{ [1, 2, 3][1:] }}{{ 'abc'[:2] }}{{ 'abc'[0] }}{{ 'abc'[::-1] }}", "[2, 3]abacba"),
        (
            "{{ x is defined }}{{ x is undefined }}{{ none is none }}{{ 1 is number }}",
            "FalseTrueTrueTrue",
        ),
        (
            "{{ 'a' is string }}{{ [] is sequence }}{{ {} is mapping }}{{ [] is iterable }}",
            "TrueTrueTrueTrue",
        ),
        (
            "{{ true is boolean }}{{ true is true }}{{ 1 is false }}{{ 1.0 is float }}",
            "TrueTrueFalseTrue",
        ),
        (
            "{{ true is integer }}{{ 4 is even }}{{ 3 is odd }}{{ 9 is divisibleby 3 }}",
            "FalseTrueTrueTrue",
        ),
        ("{{ 1 is in [1] }}{{ read_only.a }}{{ read_only|tojson }}", 'True1{"a": 1}'),
        ("a {#- not shown -#} b{{ '' }}", "ab"),
        ("{% raw %}{{ kept }}{% endraw %}", "{{ kept }}"),
        (
            "{% for i in range(2) %}{{ loop.previtem is defined }}{{ loop.length }}{% endfor %}",
            "False2True2",
        ),
    ],
)
def test_what_templates_give(text: str, expected: str) -> None:
    check_template(text)
    assert render(text, VALUES) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("inputs.words", ["b", "a", "b"]),
        ("inputs.env == 'prod' and index < 1", True),
        ("steps.review.results|map(attribute='score')|list", [70, 90]),
        ("(1, {'a': 2})", [1, {"a": 2}]),
        ("none", None),
        ("'x' if inputs.no", None),
        ("range(1, 6, 2)", [1, 3, 5]),
        ("text", "one\ntwo\nthree"),
    ],
)
def test_what_expressions_give(expression: str, expected: object) -> None:
    check_expression(expression)
    assert evaluate(expression, VALUES) == expected


def test_what_an_expression_gives_shares_nothing_with_the_values() -> None:
    values = {"inputs": {"words": ["a"]}}
    given = evaluate("inputs", values)
    given["words"].append("b")
    assert values == {"inputs": {"words": ["a"]}}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (
            "a\n{{ inputs.nope }}",
            2,
            "there is no 'nope'; there is env, n, no, target-branch, words",
        ),
        ("{{ nope }}", 1, "'nope' is undefined"),
        ("{{ nope.x }}", 1, "'nope' is undefined"),
        ("{{ nope|length }}", 1, "'nope' is undefined"),
        ("{{ nope + 1 }}", 1, "'nope' is undefined"),
        ("{{ nope == 1 }}", 1, "'nope' is undefined"),
        ("{% for x in nope %}{% endfor %}", 1, "'nope' is undefined"),
        ("{{ nope is string }}", 1, "'nope' is undefined"),
        ("{{ {}.x }}", 1, "there is no 'x'; there is nothing"),
        ("{{ [1][5] }}", 1, "a list of 1 has no 5"),
        ("{{ [1][{}] }}", 1, "a list of 1 has no that"),
        ("{{ 'x'.y }}", 1, "a text has no 'y'"),
        ("{{ {}[1:] }}", 1, "a mapping has no parts"),
        ("{{ 'abc'['a':] }}", 1, "slice indices must be integers"),
        ("{% set ns = namespace() %}\n{{ ns.y }}", 2, "'y' is undefined"),
        ("{% for x in [1] %}{{ loop.cycle }}{% endfor %}", 1, "no plain data has no 'cycle'"),
        ("x\n\n{{ 1|bogus }}", 3, "there is no filter 'bogus'"),
        ("{{ 1|uper }}", 1, "Did you mean upper?"),
        ("{% if false %}{{ 1|bogus }}{% endif %}", 1, "there is no filter 'bogus'"),
        ("{{ 1 is bogus }}", 1, "there is no test 'bogus'"),
        ("{{ inputs.env.format(1) }}", 1, "there is no method 'format'"),
        ("{{ x", 1, "unexpected end of template"),
        ("{% for x in y %}\n", 1, "Unexpected end of template"),
        ("{% if %}", 1, "Expected an expression"),
        ("{% elephant %}", 1, "unknown tag 'elephant'"),
        ("{{ 1 / 0 }}", 1, "division by zero"),
        ("{% for a, b in [1] %}{% endfor %}", 1, "cannot unpack"),
        ("{% set inputs.x = 1 %}", 1, "cannot assign attribute on non-namespace object"),
        ("{{ 1 + 'a' }}", 1, "+ does not go between a number and a text"),
        ("{{ 'a' - 1 }}", 1, "- does not go between a text and a number"),
        ("{{ [1] * 3 }}", 1, "* does not go between a list and a number"),
        ("{{ {} + none }}", 1, "+ does not go between a mapping and nothing (none)"),
        ("{{ 1 < 'a' }}", 1, "a number and a text have no order"),
        ("{{ true < none }}", 1, "true or false and nothing (none) have no order"),
        ("{{ 1 in 5 }}", 1, "`in` looks into a list, a text or a mapping, not into a number"),
        ("{% for x in 5 %}{% endfor %}", 1, "a number has no items to go through"),
        ("{{ 5|length }}", 1, "a number has no length"),
        ("{{ []|first }}", 1, "an empty list has no such item"),
        ("{{ []|max }}", 1, "an empty list has no such item"),
        ("{{ [1, 'a']|sort }}", 1, "texts and numbers have no common order"),
        ("{{ [[1]]|sort }}", 1, "expected texts or numbers, got a list"),
        ("{{ [{}]|unique }}", 1, "expected texts or numbers, got a mapping"),
        ("{{ [{}]|map(attribute='x') }}", 1, "an item has no 'x'"),
        ("{{ [[1]]|map(attribute='5') }}", 1, "an item has no '5'"),
        ("{{ [{}]|map(attribute=5) }}", 1, "an attribute is a text"),
        ("{{ [1]|map }}", 1, "map takes the name of a filter"),
        ("{{ [1]|select('bogus') }}", 1, "select takes the name of a test"),
        ("{{ ['a']|sum }}", 1, "expected a number, got a text"),
        ("{{ 5|upper }}", 1, "upper is for texts, and this is a number"),
        ("{{ 'a'.split([]) }}", 1, "split takes a text, got a list"),
        ("{{ inputs.n.items() }}", 1, "expected a mapping, got a number"),
        ("{{ 'a'.strip(x=1) }}", 1, "strip() cannot be called like this"),
        ("{{ ','.join([1]) }}", 1, "expected text, got a number"),
        ("{{ 'a'|replace('a', 1) }}", 1, "expected text, got a number"),
        ("{{ {1: 2} }}", 1, "expected text as the key of a mapping, got a number"),
        ("{{ 1|fromjson }}", 1, "fromjson reads a text, got a number"),
        ("{{ '{'|fromjson }}", 1, "this text is no JSON"),
        ("{{ 'a'|indent(99) }}", 1, "indent takes 0 to 40 spaces"),
        ("{{ 'a'|truncate(0) }}", 1, "truncate takes a length from 1"),
        ("{{ 1|round(99) }}", 1, "round takes 0 to 15 digits"),
        ("{{ 1|tojson(99) }}", 1, "tojson is indented by 0 to 8 spaces"),
        ("{{ range('a') }}", 1, "range takes whole numbers"),
        ("{{ range() }}", 1, "range() cannot be called like this"),
        ("{{ range(1, 2, 0) }}", 1, "arg 3 must not be zero"),
        ("{{ namespace(1) }}", 1, "namespace() cannot be called like this"),
        ("{{ namespace() }}", 1, "Namespace is no plain data"),
        ("{{ inputs() }}", 1, "inputs() cannot be called like this"),
        ("{{ inputs.x()() }}", 1, "there is no method 'x'"),
        ("{{ [1]() }}", 1, "this() cannot be called like this"),
        ("{{ 1|join(*[1]) }}", 1, "* and ** are not available in a call"),
        ("{{ 1|upper(1, 2, 3) }}", 1, "upper is for texts"),
        ("{{ 'a'|upper(1) }}", 1, "takes no arguments"),
        ("{{ 1e999 }}", 1, "a number is too large"),
        ("{% set ns = namespace(_x=1) %}{{ ns._x }}", 1, "names that start with _"),
        ("{% set ns = namespace() %}{% set ns._x = 1 %}", 1, "names that start with _"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        render(text, VALUES, "workflows/deploy.md, step build")
    assert said in str(refused.value)
    assert f"workflows/deploy.md, step build, line {line}: " in refused.value.cause
    assert refused.value.remedy
    assert isinstance(refused.value, BadTemplate) and refused.value.line == line


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 +", "unexpected 'end of template'"),
        ("", "unexpected 'end of template'"),
        ("a b", "b comes after the end"),
        ("inputs }} {{ inputs", "comes after the end"),
        ("1e308 * 10", "it gives inf, which is no number"),
        ("steps.nope", "there is no 'nope'; there is review"),
        ("x._y", "names that start with _"),
    ],
)
def test_a_bad_expression_is_refused(expression: str, said: str) -> None:
    with pytest.raises(Invalid, match="the expression, line 1: ") as refused:
        evaluate(expression, VALUES)
    assert said in str(refused.value)


def test_a_bad_template_is_found_without_any_values() -> None:
    check_template("{{ inputs.anything.at.all }}")
    check_expression("inputs.anything > 3")
    with pytest.raises(Invalid, match="the template, line 2: there is no filter"):
        check_template("\n{{ x|bogus }}")
    with pytest.raises(Invalid, match="here, line 1"):
        check_expression("1 +", "here")


def test_a_refusal_crosses_processes() -> None:
    with pytest.raises(BadTemplate) as refused:
        check_template("{{ x|bogus }}")
    again = pickle.loads(pickle.dumps(refused.value))  # noqa: S301 (our own)
    assert (again.cause, again.remedy) == (refused.value.cause, refused.value.remedy)


def test_the_names_that_a_template_needs() -> None:
    text = "{% for f in result.files %}{{ f }} {{ index }}{% endfor %}{% set x = 1 %}{{ x }}"
    assert names_used(text) == {"result", "index"}
    assert names_used("result.files and inputs.env") == {"result", "inputs"}
    assert names_used("Fix the bug", expression=False) == set()
    with pytest.raises(Invalid):
        names_used("Fix the bug")


def test_the_parts_of_a_value_that_a_template_takes() -> None:
    text = "{{ inputs.a.b }}{{ inputs['c-d'] }}\n{{ inputs[x] }}{{ inputs|tojson }}{{ y.inputs.z }}"
    assert attributes_used(text, "inputs") == {"a", "c-d"}
    uses = template_uses(text, expression=False)
    assert uses.names == {"inputs", "x", "y"}
    assert uses.paths["inputs"] == [
        PathUsed(("c-d",), 1),
        PathUsed(("a", "b"), 1),
        PathUsed((), 2),
        PathUsed((), 2),
    ]
    assert attributes_used("inputs.a and steps.b", "steps") == {"b"}
    assert attributes_used("{% set steps = 1 %}{{ steps }}", "steps") == set()
    assert template_uses("no template", expression=False) == (frozenset(), {})
