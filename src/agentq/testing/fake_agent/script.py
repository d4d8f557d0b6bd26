"""The script of a rehearsal: a YAML file that says what the stand-in does, step by step.

    tasks:                          # optional: the first section that fits is played
      - attempt: 1                  # AGENTQ_EPOCH; a number or a list of numbers
        steps:
          - say: Let me look at it.
          - crash
      - prompt: "(?i)review"        # a regular expression, looked for in the prompt
        steps:
          - think: 3s
          - result: Looks good to me.
    steps:                          # played when no section fits
      - work: 10s
      - write: {path: out.txt, text: hello}
      - spend: {usd: 0.25, tokens: 12000}
      - result: All done.
    mode: bypassPermissions         # what `claude` says is in effect, whatever it was told

A step is a word, or a word with what it needs; `steps.py` lists them. Everything is checked before
the first step is played, so a slip in the last line does not show only after an hour.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentq.core.errors import Invalid, NotFound
from agentq.core.task import NO_USAGE, Usage
from agentq.testing.fake_agent.dialect import Clock, Names
from agentq.testing.fake_agent.steps import ScriptStep, read_step, shown, usage, whole, wrong

SCRIPT_BYTES_MAX = 1 << 20
#: How much of a prompt a section's pattern sees.
PROMPT_CHARS_SEEN = 65_536

#: When the stand-in's own clock starts, unless the script says so: 2026-01-01 00:00:00 UTC.
FIRST_MOMENT = 1_767_225_600

#: What is played without a script.
DEFAULT_STEPS = (
    ScriptStep("say", {"text": "{prompt}"}),
    ScriptStep("spend", {"usd": 0.01, "tokens": 100, "turns": 1}),
    ScriptStep("result", {"text": "Done: {prompt}", "structured": None}),
)


@dataclass(frozen=True, slots=True)
class Section:
    """Steps, and which tasks they are for."""

    steps: tuple[ScriptStep, ...]
    attempts: frozenset[int] = frozenset()
    prompt: re.Pattern[str] | None = None

    @property
    def forgets(self) -> bool:
        """Whether a session to go on from is not known: decided before the first step."""
        return any(step.name == "unknown-session" for step in self.steps)

    def fits(self, prompt: str, attempt: int) -> bool:
        if self.attempts and attempt not in self.attempts:
            return False
        return self.prompt is None or bool(self.prompt.search(prompt[:PROMPT_CHARS_SEEN]))


@dataclass(frozen=True, slots=True)
class Script:
    sections: tuple[Section, ...] = (Section(DEFAULT_STEPS),)
    #: What ids are made from, beside the prompt.
    seed: str = ""
    #: Unix seconds of a clock that only the steps move; None: the machine's, for reset times.
    now: int | None = None
    #: What a session that is gone on with had spent already: tools count on from there.
    before: Usage = NO_USAGE
    #: The permission mode that `claude` says is in effect; "" for the one that it was told.
    mode: str = ""
    text: str = field(default="", repr=False)

    def section(self, prompt: str, attempt: int) -> Section:
        """What is played for this prompt in this attempt."""
        for each in self.sections:
            if each.fits(prompt, attempt):
                return each
        return Section(DEFAULT_STEPS)

    def names(self, prompt: str = "") -> Names:
        return Names(f"{self.seed}\0{self.text}\0{prompt}")

    def clock(self) -> Clock:
        return Clock(FIRST_MOMENT if self.now is None else self.now)

    def reset_base(self) -> int:
        """The Unix second from which a reset time is counted. One that has passed would mean
        nothing, so only here the machine's clock is asked, unless the script has `now:`."""
        return int(time.time()) if self.now is None else self.now


def read_script(path: Path | str | None) -> Script:
    """Read and check a script file; None stands for the default."""
    if path is None:
        return Script()
    try:
        if Path(path).is_fifo():  # opening it would wait for somebody who writes
            raise Invalid(f"The script {path} is a pipe, not a file.", "Name a file.")
        with Path(path).open("rb") as file:
            data = file.read(SCRIPT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFound(
            f"There is no script {path}.", "Check --script; without it the default is played."
        ) from None
    except OSError as error:
        raise Invalid(f"The script {path} cannot be read: {error.strerror}.") from error
    if len(data) > SCRIPT_BYTES_MAX:
        raise Invalid(f"The script {path} is larger than {SCRIPT_BYTES_MAX} bytes.", "Shorten it.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"The script {path} is not text in UTF-8: {error}.") from error
    return parse_script(text, str(path))


def parse_script(text: str, source: str = "script") -> Script:
    """Check a script; `Invalid` says where it is wrong and what was expected there."""
    plain = _load(text, source)
    _only_known(plain, ("seed", "now", "before", "mode", "tasks", "steps"), source)
    sections = [
        _section(each, f"{source}, task {number}")
        for number, each in enumerate(_listed(plain.get("tasks", []), f"{source}, tasks"), 1)
    ]
    if "steps" in plain:
        sections.append(Section(_steps(plain["steps"], source)))
    if not sections:
        raise Invalid(f"{source}: expected `steps:` or `tasks:`, got neither.", _REMEDY)
    now = plain.get("now")
    return Script(
        sections=tuple(sections),
        seed=str(plain.get("seed", "")),
        now=None if now is None else _moment(now, f"{source}, now"),
        before=usage(plain.get("before", {}), f"{source}, before"),
        mode=str(plain.get("mode", "")),
        text=text,
    )


_REMEDY = "A script looks like:  steps: [{say: Hello}, {work: 2s}, {result: Done}]"


def _load(text: str, source: str) -> Mapping[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that is given twice, of which YAML would quietly drop one."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                line = node.start_mark.line + 1
                raise Invalid(f"{source}, line {line}: {twice!r} is given twice.", _REMEDY)
            return super().construct_mapping(node, deep)

    try:
        plain = yaml.load(text, Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}, line {mark.line + 1}" if mark is not None else source
        problem = getattr(error, "problem", None) or "not YAML"
        raise Invalid(f"{where}: this cannot be read as YAML: {problem}.", _REMEDY) from error
    except (ValueError, RecursionError) as error:  # a date that is none, or nested without end
        raise Invalid(f"{source}: this cannot be read as YAML: {error}.", _REMEDY) from error
    if not isinstance(plain, dict):
        raise Invalid(f"{source}: expected `steps:` or `tasks:`, got {shown(plain)}.", _REMEDY)
    return plain


def _only_known(plain: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for name in plain:
        if name not in known:
            raise Invalid(
                f"{where}: {shown(name)} means nothing here.", f"Known are: {', '.join(known)}."
            )


def _listed(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise wrong(where, "a list", value)
    return value


def _section(plain: object, where: str) -> Section:
    if not isinstance(plain, dict):
        raise wrong(where, "`steps:` and what it is for (`attempt:`, `prompt:`)", plain)
    _only_known(plain, ("attempt", "prompt", "steps"), where)
    if "steps" not in plain:
        raise Invalid(f"{where}: expected `steps:`, got none.", _REMEDY)
    attempts = plain.get("attempt", [])
    numbers = attempts if isinstance(attempts, list) else [attempts]
    prompt = plain.get("prompt")
    return Section(
        steps=_steps(plain["steps"], where),
        attempts=frozenset(whole(each, f"{where}, attempt") for each in numbers),
        prompt=None if prompt is None else _pattern(prompt, f"{where}, prompt"),
    )


def _steps(plain: object, where: str) -> tuple[ScriptStep, ...]:
    return tuple(
        read_step(each, f"{where}, step {number}")
        for number, each in enumerate(_listed(plain, f"{where}, steps"), 1)
    )


def _pattern(value: object, where: str) -> re.Pattern[str]:
    if not isinstance(value, str):
        raise wrong(where, "a regular expression", value)
    try:
        return re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise Invalid(f"{where}: {value!r} is not a regular expression: {error}.") from error


def _moment(value: object, where: str) -> int:
    from datetime import UTC, datetime

    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    return whole(value, where)
