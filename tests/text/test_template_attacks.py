"""Templates that want out, go round for ever or grow without end are stopped, always the same way.

Bounds are counts, so a test needs no clock to show them; that a whole file of attacks is over in
seconds is what its recorded cost says.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core.errors import Invalid
from agentq.protocol import template_data
from agentq.protocol.template_sandbox import TemplateSandbox
from agentq.protocol.template_uses import template_uses
from agentq.protocol.templates import check_template, evaluate, render

LONG = (
    "{% set ns = namespace(x='x') %}"
    "{% for i in range(15) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
)
DOUBLED = (
    "{% set ns = namespace(x=[1]) %}"
    "{% for i in range(25) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
)
TUPLES = DOUBLED.replace("[", "(").replace("]", ",)")
DEEP = "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}"


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ ''|attr('__class__') }}",
        "{{ [''.strip]|map(attribute='__self__')|list }}",
        "{{ ['']|map(attribute='__class__')|list }}",
        "{{ ['']|selectattr('__class__')|list }}",
        "{{ ['']|sort(attribute='__class__') }}",
        "{{ inputs.__init__.__globals__ }}",
        "{{ inputs.get.__globals__ }}",
        "{{ inputs.pop('a') }}",
        "{{ inputs.update({'a': 2}) }}",
        "{{ inputs.list.append(1) }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ lipsum.__globals__ }}",
        "{{ joiner() }}",
        "{{ dict(a=1) }}",
        "{{ self.__init__ }}",
        "{{ self }}",
        "{{ super() }}",
        "{{ caller() }}",
        "{{ varargs }}{{ kwargs }}",
        "{{ namespace().__class__ }}",
        "{{ namespace(a=1)['_Namespace__attrs'] }}",
        "{% for x in [1] %}{{ loop._iterable }}{% endfor %}",
        "{% for x in [1] %}{{ loop }}{% endfor %}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for x in [1] %}{{ loop([1]) }}{% endfor %}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '{a.__class__}'.format_map(inputs) }}",
        "{{ ''.join.__self__ }}",
        "{{ range.__class__ }}",
        "{{ ().__class__.__bases__[0].__subclasses__() }}",
        "{{ inputs.object }}",
        "{{ inputs.object.secret }}",
        "{{ [inputs.object]|tojson }}",
        "{% set range = inputs.object %}{{ range(3).secret }}",
    ],
)
def test_nothing_leads_out_of_the_data(text: str) -> None:
    class Sesame:
        secret = "open"

        def __repr__(self) -> str:
            return "open"

    values: dict[str, Any] = {"inputs": {"a": 1, "list": [1], "object": Sesame()}}
    with pytest.raises(Invalid) as refused:
        render(text, values)
    assert "open" not in str(refused.value)
    assert values["inputs"]["a"] == 1 and values["inputs"]["list"] == [1]


@pytest.mark.parametrize(
    "text",
    [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% call x() %}{% endcall %}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{% block b %}{{ self.b() }}{% endblock %}",
        "{% filter upper %}x{% endfilter %}",
        "{% set x %}text{% endset %}",
        "{% autoescape true %}{% endautoescape %}",
        "{% do x %}",
        "{% trans %}x{% endtrans %}",
    ],
)
def test_no_statement_defines_or_fetches_a_piece_of_template(text: str) -> None:
    with pytest.raises(Invalid, match=r"not available here|unknown tag"):
        check_template(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ range(10**9) }}", "range gives at most"),
        ("{{ range(10**99) }}", "range gives at most"),
        ("{{ range(0, -10**99, -1) }}", "range gives at most"),
        ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "steps"),
        ("{% for a in range(9999) if range(9999)|sum < 0 %}{% endfor %}", "steps"),
        ("{% for a in range(9999) %}{{ range(9999)|max }}{% endfor %}", "steps"),
        ("{% for a in range(9999) %}{{ a ~ range(99) }}{% endfor %}", "steps|bytes"),
        (
            "{% for a in range(9999) %}{% if range(9999) == range(9999) %}{% endif %}{% endfor %}",
            "steps",
        ),
        ("{% for a in range(9999) %}{% if -1 in range(9999) %}{% endif %}{% endfor %}", "steps"),
        (LONG + "{% for a in range(9999) %}{% if 'y' in ns.x %}{% endif %}{% endfor %}", "steps"),
        (LONG + "{% for a in range(9999) %}{% set y = ns.x.upper() %}{% endfor %}", "steps"),
        (LONG + "{% for a in range(9999) %}{% set y = ns.x.split('x') %}{% endfor %}", "steps"),
        (LONG + "{% for a in range(9999) %}{% set y = ns.x[1:] %}{% endfor %}", "steps"),
        (LONG + "{% for a in ns.x %}{% for b in ns.x %}{% endfor %}{% endfor %}", "steps"),
        (LONG + "{{ ns.x.replace('x', ns.x) }}", "characters"),
        (LONG + "{{ ns.x|replace('', ns.x) }}", "characters"),
        (LONG + "{{ ns.x.join(ns.x.split('')) }}", "empty separator"),
        (LONG + "{{ ns.x|list|join(ns.x) }}", "characters"),
        (LONG + "{{ ns.x.join(ns.x|list) }}", "characters"),
        (LONG + "{{ ns.x + ns.x }}{{ ns.x ~ ns.x ~ ns.x }}", "characters|bytes"),
        (LONG + "{{ [ns.x, ns.x, ns.x] }}", "characters"),
        (LONG + "{{ [ns.x, ns.x, ns.x]|tojson }}", "characters"),
        (LONG + "{{ ns.x }}{{ ns.x }}{{ ns.x }}", "bytes of text"),
        ("{{ 'x' * 10**9 }}", "characters"),
        ("{{ '\\n' * 60000 }}{{ ('\\n' * 60000)|indent(40) }}", "characters|bytes"),
        ("{{ 'ü' * 40000 }}", "bytes of text"),
        ("{{ 10**9 * 'x' }}", "does not go between"),
        ("{{ [0] * 10**9 }}", "does not go between"),
        ("{{ '%1000000000d'|format(1) }}", "no filter 'format'"),
        ("{{ '%1000000000d' % 1 }}", "does not go between"),
        ("{{ 'x'|center(10**9) }}", "no filter 'center'"),
        ("{{ 'x'.center(10**9) }}", "no method 'center'"),
        ("{{ 'x'.zfill(10**9) }}", "no method 'zfill'"),
        ("{{ 'x\\n'|indent(10**9) }}", "indent takes 0 to 40"),
        ("{{ 1|round(-10**9) }}", "round takes"),
        ("{{ 9**(9**9) }}", "too large"),
        ("{{ 2**1024 * 2**1024 }}", "too large"),
        ("{{ 2 ** -(10**9) }}", "too large"),
        ("{{ ('9' * 4000)|int * 1 }}", "too large"),
        ("{{ ('9' * 4000)|int }}", "too large"),
        ("{{ 10.0 ** 999 }}", "Result too large|out of range"),
        (LONG.replace("15", "99"), "characters"),
        (LONG.replace("15", "99").replace("~", "+"), "characters"),
        (LONG.replace("15", "99").replace("~", "+").replace("'x'", "[1]"), "steps"),
        (LONG.replace("15", "99").replace("~", "*").replace("'x'", "3"), "too large"),
        (DOUBLED.replace("25", "99") + "{{ ns.x }}", "steps|nested"),
        (DOUBLED + "{{ ns.x }}", "steps"),
        (DOUBLED + "{{ ns.x|tojson }}", "steps"),
        (DOUBLED + "{{ ns.x == ns.x }}", "steps"),
        (DOUBLED + "{{ 1 in ns.x }}", "steps"),
        (DOUBLED + "{{ [ns.x]|unique }}", "expected texts"),
        (DOUBLED + "{{ [ns.x].count(1) }}", "steps"),
        (DOUBLED + "{% set range = ns.x %}{{ range(1)|length }}{{ range }}", "steps"),
        (DOUBLED + "{{ inputs[ns.x] }}", "there is no that"),
        (DOUBLED + "{{ [1]|map(ns.x) }}", "map takes the name"),
        (DOUBLED + "{{ [1]|map(attribute=ns.x) }}", "an attribute is a text"),
        (DOUBLED + "{{ 1|tojson(ns.x) }}", "tojson is indented"),
        (DOUBLED + "{{ 'a'|indent(ns.x) }}", "indent takes"),
        (DOUBLED + "{{ ns.x + 1 }}", "steps"),
        (TUPLES + "{{ {ns.x: 1} }}", "as the key of a mapping"),
        (TUPLES + "{{ inputs.get(ns.x) }}{{ ns.x in inputs }}", "steps"),
        (DEEP + "{{ ns.x }}", "nested deeper"),
        (DEEP + "{{ ns.x == ns.x }}", "nested deeper"),
        ("{{ ('[' * 60000)|fromjson }}", "no JSON"),
        ("{{ ('[' * 900 ~ ']' * 900)|fromjson }}", "nested deeper"),
    ],
)
def test_what_grows_or_goes_round_is_stopped(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        render(text, {"inputs": {"a": 1}})
    assert len(str(refused.value)) < 800


@pytest.mark.parametrize(
    "text",
    [
        "{{ " + "(" * 30_000,
        "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
        "{{ " + "[" * 300 + "]" * 300 + " }}",
        "{{ " + "not " * 10_000 + "1 }}",
        "{{ " + "-" * 30_000 + "1 }}",
        "{{ a" + ".a" * 30_000 + " }}",
        "{{ a" + "|first" * 9_000 + " }}",
        "{{ 1" + "+1" * 30_000 + " }}",
        "{{ 1" + " and 1" * 9_000 + " }}",
        "{{ 1" + " if 1 else 1" * 5_000 + " }}",
        "{% if x %}" * 5_000,
        "{% if x %}" * 50 + "{% endif %}" * 50,
        "{% if 0 %}" + "{% elif 1 %}" * 5_000 + "{% endif %}",
        "{{ a }}" * 9_000,
        "{{ [" + "1," * 30_000 + "] }}",
        "{{ [" + "-1," * 3_000 + "] }}",
        "{{ 1" + " < 1" * 9_000 + " }}",
        "{{ " + "9" * 5_000 + " }}",
        "{{ x }}" + "x" * 70_000,
    ],
)
def test_monstrous_templates_are_refused_before_they_run(text: str) -> None:
    with pytest.raises(Invalid):
        template_uses(text, expression=False)


def test_loops_in_loops_in_loops_are_refused() -> None:
    with pytest.raises(Invalid, match="loops are nested deeper than 6"):
        check_template("{% for x in y %}" * 7 + "{% endfor %}" * 7)
    check_template("{% for x in y %}{% endfor %}" * 20)


@pytest.mark.parametrize(
    ("opening", "middle", "closing"),
    [
        ("{{ " + "(1, " * 30, "1", ")" * 30 + " }}"),
        ("{{ 1", "+1" * 30, " }}"),
        ("{{ 1", "|abs" * 30, " }}"),
        ("{{ x", "['a']" * 30, " }}"),
        ("{{ 1", " if 1 else 1" * 30, " }}"),
        ("{{ 1", " < 2" * 30, " }}"),
        ("{% if 1 %}" * 30, "x", "{% endif %}" * 30),
        ("{% with %}" * 30, "x", "{% endwith %}" * 30),
        ("{% for x in [1] if x %}" * 6, "{{ loop.index }}", "{% else %}{{ 1 }}{% endfor %}" * 6),
    ],
)
def test_what_is_allowed_to_nest_can_be_run(opening: str, middle: str, closing: str) -> None:
    """The bounds are those of this module, met before any of Python's own."""
    check_template(opening + middle + closing)
    assert sys.getrecursionlimit() >= 1000


def test_values_larger_than_any_output_can_be_looked_into() -> None:
    rows = [{"name": f"file-{number}", "text": "x" * 1000} for number in range(2000)]
    assert render("{{ rows|length }} {{ rows[-1].name }}", {"rows": rows}) == "2000 file-1999"
    assert evaluate("rows|map(attribute='name')|list", {"rows": rows})[7] == "file-7"
    assert evaluate("text.splitlines()[0]", {"text": "one\n" + "x" * 500_000}) == "one"


def test_every_loop_pays_for_its_whole_body() -> None:
    """A hundred thousand steps are soon gone in a loop that does much in every round."""
    busy = "{% for i in range(3000) %}" + "{% set x = i + i %}" * 20 + "{% endfor %}"
    with pytest.raises(Invalid, match="steps"):
        render(busy, {})
    assert render("{% for i in range(3000) %}{% set x = i + i %}{% endfor %}", {}) == ""


@pytest.mark.parametrize(
    "body",
    [
        "{% set x = rows|list %}",
        "{% set x = rows|reverse %}",
        "{% set x = rows[:] %}",
        "{% set x = rows + rows %}",
        "{% set x = range(9999) %}",
        "{% set x = names.keys() %}",
        "{% set x = rows|map(attribute=long, default=0) %}",
        "{% set x = names[long]|default(0) %}",
        "{% set x = names.get(long) %}",
        "{% set x = long.find('y') %}",
        "{% set x = long|fromjson %}",
        "{% set x = long|int %}",
        "{% set x = {'a': rows} == {'a': rows} %}",
    ],
)
def test_whatever_takes_long_with_much_data_pays_for_it(body: str) -> None:
    values = {
        "rows": [{"n": number} for number in range(50_000)],
        "names": {f"name-{number}": number for number in range(20_000)},
        "long": "1" * 60_000,
    }
    with pytest.raises(Invalid, match=r"steps|JSON"):
        render("{% for i in range(9999) %}" + body + "{% endfor %}", values)


def test_to_miss_a_name_among_many_costs_little() -> None:
    names = {f"name-{number}": number for number in range(50_000)}
    text = "{% for i in range(5000) %}{% set x = names['no' ~ i]|default(0) %}{% endfor %}ok"
    assert render(text, {"names": names}) == "ok"
    with pytest.raises(Invalid, match="there is no 'x'; there is name-0, name-1, "):
        render("{{ names.x }}", {"names": names})


def test_what_is_stopped_is_stopped_at_the_same_place_every_time() -> None:
    endless = "{% for i in range(9999) %}\n{% set x = [i]|sum %}{% endfor %}"
    told = set()
    for _ in range(3):
        with pytest.raises(Invalid) as refused:
            render(endless, {})
        told.add(str(refused.value))
    assert len(told) == 1


def test_one_rendering_leaves_no_steps_behind_for_the_next() -> None:
    assert TemplateSandbox().data.steps_left == template_data.STEPS_MAX
    for _ in range(3):
        assert render("{% for i in range(9000) %}{% endfor %}ok", {}) == "ok"


PIECES = st.sampled_from([
    "{{", "}}", "{%", "%}", "{#", "#}", " for x in ", " endfor ", " if ", " endif ", " set x = ",
    "range(", "namespace(", ")", "x", "inputs", ".a", "['a']", "[1:]", "|join", "|map('upper')",
    "|tojson", "|default(", " ~ ", " + ", " * ", " ** ", " in ", " is ", "defined", "'", '"', "1",
    "99999", "1e9", "-", "\n", ",", ":", "{", "}", "loop.index", "_", "not ", " and ", " else ",
])  # fmt: skip


def check_refusal(refused: Invalid) -> None:
    assert refused.remedy and ", line " in refused.cause


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60).map("{{ {} }}".format))
def test_any_text_is_rendered_or_refused(text: str) -> None:
    try:
        assert isinstance(render(text, {"inputs": {"a": [1, "x"]}, "x": "text"}), str)
    except Invalid as refused:
        check_refusal(refused)


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60))
def test_any_expression_is_evaluated_or_refused(text: str) -> None:
    try:
        evaluate(text, {"inputs": {"a": [1, "x"]}, "x": "text"})
    except Invalid as refused:
        check_refusal(refused)
