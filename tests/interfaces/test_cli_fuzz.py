"""Whatever is typed, and whatever stands in a file: an answer or a refusal, never an accident."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentq.cli.main import cli
from agentq.client.task_input.specs import FIELDS
from tests.interfaces.conftest import Answer, count_tasks, run_here
from tests.tiers import made_up

pytestmark = pytest.mark.long

#: Every status that a user's mistake may have. 1 is ours alone: something nobody expected.
EXPECTED = {0, 2, 3, 4, 5, 6, 7, 8}
#: They wait for what may never come.
WAITING = {"--follow", "-f", "--wait"}


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One installation for all examples; what one leaves behind, the next one meets."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_here("init").ok()
        for number in range(3):
            run_here("submit", "--to", "w", "--instructions", "x", "--id", f"t{number}").ok()
        Path("task-file.md").write_text("---\nto: w\n---\nText.\n")
        Path("bulk.jsonl").write_text('{"to": "w", "instructions": "x"}\n')
        yield Path(folder)
        os.chdir(before)


def commands() -> list[tuple[list[str], click.Command]]:
    context = click.Context(cli)
    found: list[tuple[list[str], click.Command]] = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += [([name, inner], each) for inner, each in command.commands.items()]
        else:
            found.append(([name], command))
    return found


#: No slash: an example must not write outside of its folder.
texts = st.text(st.characters(exclude_characters="/", exclude_categories=()), max_size=12)
values = st.one_of(
    st.sampled_from([
        "t0", "t1", "t", "w", "1", "0", "-1", "40", "1h", "5x", "-", "", "a=b", "task-file.md",
        "bulk.jsonl", "ready", "high", "fail", "bash", "nan", "1e400", "9" * 30, "[", "{}", "--",
    ]),
    texts,
)  # fmt: skip


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    path, command = draw(st.sampled_from(ALL))
    options = [name for each in command.params for name in each.opts if name.startswith("-")]
    known = st.sampled_from([name for name in options if name not in WAITING])
    words = draw(st.lists(st.one_of(known, values, values), max_size=7))
    if path == ["wait"]:
        words = ["--timeout", "0", *words]
    return [*draw(st.sampled_from([[], [], ["--json"]])), *path, *words]


#: Three run until they are ended, and one takes the installation away from the other examples.
LEFT_OUT = ("up", "serve", "worker", "move")
ALL = [(path, command) for path, command in commands() if path[0] not in LEFT_OUT]


def no_accident(answer: Answer) -> None:
    assert answer.status in EXPECTED, f"{answer.status}: {answer.err}{answer.out}"
    assert "Traceback" not in answer.err + answer.out


@settings(
    max_examples=made_up(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(words=command_lines(), stdin=st.one_of(st.just(b""), st.binary(max_size=20)))
def test_any_words(home: Path, words: list[str], stdin: bytes) -> None:
    if any(word in WAITING or word.startswith(("--w", "--fo")) for word in words):
        return  # an abbreviation may be one of those, too
    answer = run_here(*words, stdin=stdin)
    no_accident(answer)
    # Further back `--json` may be the value of an option, as in `--url --json`.
    if words[0] == "--json" and answer.status != 0 and answer.out:
        assert json.loads(answer.out)


#: What nobody would type on purpose, and what a broken script hands over.
ODD = [
    "", " ", "-", "-1", "..", "../x", "/", "9" * 400, str(2**63), "1e400", "nan", "3651d",
    "x" * 5_000, "a\nb",
    "a\x00b", "\udcff", "\ud800", "\u202e\x1b[2J", "%s", "*", "=", "a=", "folder", "pipe",
    "/dev/zero", "/dev/full", "binary", "--json", "sqlite://", "sqlite:///folder", "sqlite:///pipe",
    "sqlite:///binary", "postgresql://[", "amqp://[", "s3://[",
]  # fmt: skip
#: The words that make each command do something.
WHOLE = {
    "submit": ["--to", "w", "--title", "x"], "claim": ["--as", "w"], "status": ["t0"],
    "complete": ["t0"], "fail": ["t0", "--reason", "r"], "block": ["t0", "--reason", "r"],
    "heartbeat": ["t0"], "progress": ["t0", "40"], "release": ["t0"], "approve": ["t0"],
    "reject": ["t0"], "answer": ["t0", "x"], "cancel": ["t2"], "requeue": ["t2"],
    "comment": ["t0", "x"], "wait": ["t0", "--timeout", "0"], "artifacts get": ["t0", "n"],
    "artifacts put": ["t0", "task-file.md"], "artifacts link": ["t0", "n"],
    "circuits open": ["p", "--for", "1h"], "limits": ["w"], "explain": ["t0"], "replay": ["t0"],
    "prune": ["--older-than", "3650d", "--yes"], "dlq show": ["t2"], "logs": ["t0"],
    "result": ["t0"], "db backup": ["copy.db"], "workspaces open": ["t0"],
    "token create": ["--name", "n", "--scope", "read"], "token revoke": ["n"],
}  # fmt: skip


@pytest.fixture(scope="module")
def odd_home(home: Path) -> Path:
    """With places that are no files."""
    if not Path("pipe").exists():
        os.mkfifo("pipe")
        Path("folder").mkdir()
        Path("binary").write_bytes(b"\xff\xfe\x00\x01")
    return home


#: How many commands have a parameter of this name.
SHARED = Counter(param.name for _, command in ALL for param in command.params)


def part_of(things: Sequence[Any], turn: int, parts: int) -> Sequence[Any]:
    """One part of them, at each turn another; `make fuzz` tries all of them everywhere."""
    return things if made_up(1) > 1 else things[turn % parts :: parts]


def odd_values(param: click.Parameter, path: list[str]) -> Sequence[str]:
    """All of them; of a parameter that several commands share, here some and elsewhere others."""
    place = [each for each, _ in ALL].index(path)
    return part_of(ODD, place, min(SHARED[param.name], 5))


@pytest.mark.fuzz
@pytest.mark.parametrize(("path", "command"), ALL, ids=lambda each: str(each)[:40])
def test_any_odd_value_of_any_option(
    odd_home: Path, path: list[str], command: click.Command
) -> None:
    words = WHOLE.get(" ".join(path), [])
    odd = {param: odd_values(param, path) for param in command.params}
    if path == ["wait"]:
        path = ["wait", "--timeout", "0"]
    for param, values in odd.items():
        for value in values:
            if isinstance(param, click.Argument):
                no_accident(run_here(*path, value))
                if words:
                    no_accident(run_here(*path, *words[:1], value))
            elif not getattr(param, "is_flag", False) and param.opts[0] not in WAITING:
                no_accident(run_here(*path, *words, param.opts[0], value))


@pytest.mark.fuzz
@pytest.mark.parametrize(
    "name",
    ["AGENTQ_URL", "AGENTQ_EPOCH", "AGENTQ_TASK_ID", "AGENTQ_ACTOR", "AGENTQ_ARTIFACTS_ROOT",
     "AGENTQ_HOME", "AGENTQ_TOKEN", "AGENTQ_ROLE", "AGENTQ_MAY", "AGENTQ_FOUR_EYES", "COLUMNS"],
)  # fmt: skip
def test_any_odd_variable(odd_home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(odd_home / "data"))
    commands = (
        ["list"], ["status", "t0"], ["submit", "--to", "w", "--title", "x"], ["comment", "hi"],
        ["approve", "t0"], ["artifacts", "put", "t0", "task-file.md"], ["db", "status"],
    )  # fmt: skip
    for turn, value in enumerate([*ODD, "²", "1"]):
        if "\x00" in value or "\ud800" in value:
            continue  # no variable holds that
        for other in ("AGENTQ_TASK_ID", "AGENTQ_EPOCH"):
            monkeypatch.setenv(other, "t0" if other == "AGENTQ_TASK_ID" else "1")
        monkeypatch.setenv(name, value)
        for words in part_of(commands, turn, 3):
            no_accident(run_here(*words))


@pytest.mark.fuzz
def test_any_odd_settings(odd_home: Path) -> None:
    file = odd_home / "agentq.toml"
    before = file.read_bytes()
    places = ["ledger.url", "artifacts.root", "artifacts.endpoint", "broker.url", "retention.keep",
              "roles.w.agent", "roles.w.command", "roles.w.slots", "roles.w.timeout",
              "roles.w.max_running", "roles.w.verify", "roles.w.budget_usd", 'roles."../x".slots',
              'roles."".slots']  # fmt: skip
    values = ['""', '" "', "7", "-1", "9" * 30, "1e400", "nan", "true", "[]", "[1]", "{}", '"../x"',
              '"\\u0000"', "2020-01-01", '"amqp://["', '"s3://["', '"sqlite:///pipe"']  # fmt: skip
    texts = [f"{place} = {value}\n".encode() for place in places for value in values]
    commands = (["list"], ["limits"], ["submit", "--to", "w", "--title", "x"])
    texts += [b"\xff", b"\x00", b"[ledger", b"x=" + b"[" * 50_000, b"[[roles]]\n", b"a" * 100_000]
    try:
        for turn, text in enumerate(texts):
            file.write_bytes(text)
            for words in part_of(commands, turn, len(commands)):
                no_accident(run_here(*words))
    finally:
        file.write_bytes(before)


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts,
        st.sampled_from(["w", "1h", "t0", "high", "a,b", ["t1"], {"k": "v"}, {"usd": 1}]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip
bulk_objects = st.builds(
    lambda fields, whole: {**fields, **({"to": "w", "instructions": "x"} if whole else {})},
    st.dictionaries(
        st.one_of(st.sampled_from(sorted(FIELDS)), texts), json_values, max_size=4
    ),
    st.booleans(),
)  # fmt: skip


def as_line(value: Any) -> bytes:
    return json.dumps(value).encode()


bulk_lines = st.one_of(
    bulk_objects.map(as_line), bulk_objects.map(as_line), json_values.map(as_line),
    st.binary(max_size=30),
)  # fmt: skip


@settings(
    max_examples=made_up(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(lines=st.lists(bulk_lines, max_size=4))
def test_any_lines_in_bulk(home: Path, lines: list[bytes]) -> None:
    before = count_tasks()
    answer = run_here("submit", "--bulk", "-", "--json", stdin=b"\n".join(lines))
    no_accident(answer)
    if answer.status == 0:
        told = answer.json()
        assert len(told["ids"]) == told["submitted"]
        assert count_tasks() <= before + told["submitted"]
    else:
        assert count_tasks() == before


@settings(
    max_examples=made_up(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    head=st.one_of(
        bulk_objects.map(as_line),
        st.binary(max_size=60),
        st.lists(st.tuples(st.sampled_from(sorted(FIELDS)), texts), max_size=4).map(
            lambda pairs: "\n".join(f"{k}: {v}" for k, v in pairs).encode("utf-8", "replace")
        ),
    ),
    body=st.binary(max_size=40),
)
def test_any_task_file(home: Path, head: bytes, body: bytes) -> None:
    (home / "any.md").write_bytes(b"---\n" + head + b"\n---\n" + body)
    before = count_tasks()
    answer = run_here("submit", "--to", "w", "--file", "any.md", "--json")
    no_accident(answer)
    assert count_tasks() in ((before,) if answer.status else (before, before + 1))
