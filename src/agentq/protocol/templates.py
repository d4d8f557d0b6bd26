"""Templates and expressions in workflow files: a bounded, sandboxed part of Jinja.

`{{ inputs.name }}`, `{% if … %}`, `{% for … %}`; see `template_language` for what there is. They
see plain data and change nothing. One that loops or grows without end, or names what is not there,
is an `Invalid` that says where and why; and always the same one, since steps and characters are
counted, not seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from agentq.core.errors import Invalid
from agentq.protocol.template_data import TemplateFault

if TYPE_CHECKING:
    from agentq.protocol.template_sandbox import TemplateSandbox

_Given = TypeVar("_Given")
_ABSENT = "Check the name; what may be missing gets a |default('…')."
_FAILED = "Check the values that it uses."
_REMEDY = "Write it like {{ inputs.name }}, or {% if inputs.name %}…{% endif %}."


class BadTemplate(Invalid):
    """A template or an expression that cannot be used; `line` is that of its own text."""

    line = 1
    problem = ""


def is_template(text: str) -> bool:
    """Whether there is anything to render."""
    return "{{" in text or "{%" in text


def check_template(text: str, where: str = "") -> None:
    """Raise `Invalid`, with the line, unless it is a template that may run."""
    _checked(text, where, expression=False)


def check_expression(expression: str, where: str = "") -> None:
    """Raise `Invalid` unless it is one expression that may run."""
    _checked(expression, where, expression=True)


def render(text: str, values: Mapping[str, Any], where: str = "") -> str:
    """The text with its templates filled in from `values`, which is plain JSON data.

    >>> render("Deploy to {{ inputs.env|upper }}.", {"inputs": {"env": "prod"}})
    'Deploy to PROD.'
    """
    if not is_template(text):
        return text
    return _run(text, where, False, lambda box, ready: box.run(ready, values))


def evaluate(expression: str, values: Mapping[str, Any], where: str = "") -> Any:
    """What one expression gives, as plain data of its own.

    >>> evaluate("inputs.env == 'prod' and score > 80", {"inputs": {"env": "prod"}, "score": 90})
    True
    """
    return _run(expression, where, True, lambda box, ready: box.value_of(ready, values))


def names_used(text: str, *, expression: bool | None = None) -> set[str]:
    """The names of the values that it needs; without `expression` a text with no {{ or {% is one.

    >>> sorted(names_used("{% for file in result.files %}{{ file }} {{ index }}{% endfor %}"))
    ['index', 'result']
    """
    from agentq.protocol.template_uses import template_uses

    return set(template_uses(text, expression=_as_expression(text, expression)).names)


def attributes_used(text: str, name: str, *, expression: bool | None = None) -> set[str]:
    """What it takes from one of the values, by name.

    >>> sorted(attributes_used("{{ inputs.env }} {{ inputs['branch'] }}", "inputs"))
    ['branch', 'env']
    """
    from agentq.protocol.template_uses import template_uses

    uses = template_uses(text, expression=_as_expression(text, expression))
    return {use.path[0] for use in uses.paths.get(name, ()) if use.path}


def _as_expression(text: str, expression: bool | None) -> bool:
    return not is_template(text) if expression is None else expression


def _checked(text: str, where: str, *, expression: bool) -> None:
    _run(text, where, expression, lambda box, ready: None)


def _run(
    text: str, where: str, expression: bool, use: Callable[[TemplateSandbox, Any], _Given]
) -> _Given:
    def whole(box: TemplateSandbox) -> _Given:
        return use(box, box.compiled(box.read(text, expression=expression), expression=expression))

    return guarded(where, expression, whole)


def guarded(where: str, expression: bool, use: Callable[[TemplateSandbox], _Given]) -> _Given:
    """Use a sandbox; whatever goes wrong becomes one error, that says in which line of what."""
    from jinja2.exceptions import TemplateError, TemplateSyntaxError, UndefinedError

    from agentq.protocol.template_sandbox import TemplateSandbox

    try:
        return use(TemplateSandbox())
    except RecursionError:
        problem, remedy, line = "it is nested too deep", "Flatten it.", 1
    except TemplateFault as fault:
        problem, remedy, line = fault.problem, fault.remedy, fault.line or _line_of(fault)
    except TemplateSyntaxError as error:
        problem, remedy, line = str(error.message), _REMEDY, error.lineno
    except TemplateError as error:
        remedy = _ABSENT if isinstance(error, UndefinedError) else _FAILED
        problem, line = str(error.message), _line_of(error)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        problem, remedy, line = f"it fails: {str(error)[:200]}", _FAILED, _line_of(error)
    at = where or ("the expression" if expression else "the template")
    raise _bad(at, line, problem.rstrip("."), remedy)


def _bad(at: str, line: int, problem: str, remedy: str) -> BadTemplate:
    error = BadTemplate(f"{at}, line {line}: {problem}.", remedy)
    error.line, error.problem = line, problem
    return error


def _line_of(error: BaseException) -> int:
    """The line of the template that was running, from the frames that the error went through."""
    from agentq.protocol.template_sandbox import FILE

    line, trace = 1, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename == FILE:
            line = _template_line(frame.f_globals.get("debug_info", ""), trace.tb_lineno)
        trace = trace.tb_next
    return line


def _template_line(debug_info: str, code_line: int) -> int:
    """Jinja writes `template=code` pairs of lines, in order."""
    line = 1
    for pair in filter(None, debug_info.split("&")):
        of_template, _, of_code = pair.partition("=")
        if int(of_code) <= code_line:
            line = int(of_template)
    return line
