"""Task files: what people write is understood, and what cannot be is refused with its line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentq.client.task_input.fields import check_fields
from agentq.client.task_input.task_file import (
    TaskFile,
    parse_task_text,
    read_task_file,
)
from agentq.core.errors import AgentqError, Invalid, NotFound
from agentq.protocol import front_matter

WHOLE = """\
---
id: task-42
title: Fix the parser
to: implementation-worker
from: coordinator
type: implementation
priority: high
ttl: 8h
timeout: 1h30m
delay: 90
max_attempts: 5
after: [task-40, task-41]
base: task-40, task-41
on_dependency_failure: skip
next:
  - review.md
resource: repo/main
idempotency_key: 2026-11-15
irreversible: yes
requires_approval: false
review: true
expect: summary, patch
expected_output: {format: markdown, artifacts: [risks]}
budget_usd: 2.50
budget: {tokens: 200000, turns: 40, seconds: 15m}
reply_to: results.coordinator
labels: {team: core, pr: 12, urgent: true}
instructions: >
  Implement one scoped change
  and run tests.
traceparent: 00-abc-def-01
lease_seconds: 60
approval_timeout: 2d
---
# Fix the parser

It fails on empty input.
"""


def front(text: str) -> dict[str, object]:
    return parse_task_text(f"---\n{text}\n---\n", "task.md").fields


def test_every_field() -> None:
    parsed = parse_task_text(WHOLE, "task.md")
    assert parsed.body == "# Fix the parser\n\nIt fails on empty input.\n"
    assert parsed.fields == {
        "id": "task-42",
        "title": "Fix the parser",
        "to": "implementation-worker",
        "from": "coordinator",
        "type": "implementation",
        "priority": "high",
        "ttl_seconds": 28_800,
        "timeout_seconds": 5_400,
        "delay_seconds": 90,
        "max_attempts": 5,
        "after": ["task-40", "task-41"],
        "base": ["task-40", "task-41"],
        "on_dependency_failure": "skip",
        "next": ["review.md"],
        "resources": ["repo/main"],
        "idempotency_key": "2026-11-15",
        "irreversible": True,
        "requires_approval": False,
        "review": True,
        "expected_output": {"format": "markdown", "artifacts": ["risks", "summary", "patch"]},
        "budget": {"usd": 2.5, "tokens": 200_000, "turns": 40, "seconds": 900},
        "reply_to": "results.coordinator",
        "labels": {"team": "core", "pr": "12", "urgent": "true"},
        "instructions": "Implement one scoped change and run tests.\n",
        "traceparent": "00-abc-def-01",
        "lease_seconds": 60,
        "approval_timeout_seconds": 172_800,
    }


def test_a_file_is_read_with_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "task-7.md"
    path.write_text(WHOLE)
    assert read_task_file(path) == TaskFile(
        parse_task_text(WHOLE).fields, "# Fix the parser\n\nIt fails on empty input.\n", "task-7"
    )
    assert read_task_file(str(path)) == read_task_file(path)


@pytest.mark.parametrize(
    ("text", "fields", "body"),
    [
        ("", {}, ""),
        ("Just do it.\n", {}, "Just do it.\n"),
        ("# Title\n---\nto: nobody\n---\n", {}, "# Title\n---\nto: nobody\n---\n"),
        ("---\n---\nbody", {}, "body"),
        ("---\n\n# only a comment\n---", {}, ""),
        ("---\nto: a\n---", {"to": "a"}, ""),
        ("---  \nto: a\n--- \t\nx\n---\ny", {"to": "a"}, "x\n---\ny"),
        ("\ufeff---\nto: a\n---\nx", {"to": "a"}, "x"),
        ("---\r\nto: a\r\ntitle: 'b'\r\n---\r\nx\r\n", {"to": "a", "title": "b"}, "x\r\n"),
        ("--- \r\n--- not a fence\r\n---", {}, None),
        ("----\nto: a\n----\n", {}, "----\nto: a\n----\n"),
        ("---\nto: ä→\n---\nü\u2028", {"to": "ä→"}, "ü\u2028"),
    ],
)
def test_where_front_matter_begins_and_ends(
    text: str, fields: dict[str, object], body: str | None
) -> None:
    if body is None:
        with pytest.raises(Invalid):
            parse_task_text(text)
    else:
        assert parse_task_text(text) == TaskFile(fields, body, "")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("title: no", {"title": "no"}),
        ("title: 2026-11-15", {"title": "2026-11-15"}),
        ("title: 1:30", {"title": "1:30"}),
        ("id: 0123", {"id": "0123"}),
        ("id: 123", {"id": "123"}),
        ("title: 'true'", {"title": "true"}),
        ("title: 1_000", {"title": "1_000"}),
        ("title: <<", {"title": "<<"}),
        ("title: ~", {}),
        ("title:", {}),
        ("title: null", {}),
        ("ttl: '3600'", {"ttl_seconds": 3600}),
        ("delay: 0", {}),
        ("delay_seconds: 0", {}),
        ("after: a, b,a", {"after": ["a", "b"]}),
        ("after: []", {"after": []}),
        ("resources: [a, b]", {"resources": ["a", "b"]}),
        ("next: a.md", {"next": ["a.md"]}),
        ("next: [a.md, {to: b, ttl: 1h}]", {"next": ["a.md", {"to": "b", "ttl_seconds": 3600}]}),
        ("expect: [a]", {"expected_output": {"artifacts": ["a"]}}),
        ("expected_output: {artifacts: 'a, b'}", {"expected_output": {"artifacts": ["a", "b"]}}),
        ("budget_usd: 5", {"budget": {"usd": 5}}),
        ("review: off", {"review": False}),
        ("labels: {}", {"labels": {}}),
        ("labels: {'1': a}", {"labels": {"1": "a"}}),
    ],
)
def test_what_is_written_is_what_is_meant(written: str, expected: dict[str, object]) -> None:
    assert front(written) == expected


@pytest.mark.parametrize(
    ("written", "says", "remedy"),
    [
        ("tittle: x", "line 2: there is no field 'tittle'", "Did you mean title?"),
        ("to: a\nmax-attempts: 3", "line 3: there is no field 'max-attempts'", "max_attempts?"),
        ("zzz: x", "there is no field 'zzz'", "Known are: after, "),
        ("to: a\n\nttl: soon", "line 4: ttl: expected a duration, got 'soon'", "8h"),
        ("ttl: 0", "ttl: expected more than zero", ""),
        ("ttl: 1.5", "ttl: expected a duration, got 1.5", ""),
        ("ttl_seconds: 8h", "ttl_seconds: expected a whole number, got '8h'", ""),
        ("ttl: 1h\nttl_seconds: 3600", "ttl_seconds and ttl say the same twice", "one of them"),
        ("resource: a\nresources: b", "say the same twice", ""),
        ("budget_usd: 1\nbudget: {usd: 1}", "budget_usd and budget.usd say the same twice", ""),
        ("title: true", "title: expected text, got true", "quotes"),
        ("title: 1.10", "title: expected text, got 1.1", "quotes"),
        ("title: [a]", "title: expected text, got a list", ""),
        ("to: ' '", "to: expected some text", "Leave the field out"),
        ("title: \"a\\0b\"", "NUL", ""),
        ("max_attempts: three", "max_attempts: expected a whole number, got 'three'", ""),
        ("max_attempts: -1", "expected a whole number from 0", ""),
        ("max_attempts: true", "expected a whole number, got true", ""),
        ("irreversible: maybe", "irreversible: expected true or false, got 'maybe'", ""),
        ("irreversible: 1", "irreversible: expected true or false, got 1", ""),
        ("after: {a: b}", "after: expected text, got a mapping", ""),
        ("after: [[a]]", "after: expected text, got a list", ""),
        ("labels: a", "labels: expected `key: value` pairs, got 'a'", ""),
        ("labels: {a: [b]}", "labels.a: expected text, got a list", ""),
        ("labels: {a: 1.0}", "labels.a: expected text", "quotes"),
        ("labels: {a: ~}", "labels.a: expected text", ""),
        ("expected_output: summary", "expected_output: expected `key: value` pairs", ""),
        ("expected_output: {formt: a}", "no field 'expected_output.formt'", "Did you mean format?"),
        ("budget: {euro: 1}", "no field 'budget.euro'", ""),
        ("budget: {usd: -1}", "budget.usd: expected a number from 0", ""),
        ("budget: {tokens: 1.5}", "budget.tokens: expected a whole number", ""),
        ("budget_usd: cheap", "budget_usd: expected a number, got 'cheap'", ""),
        ("next: {to: a, tto: b}", "next: there is no field 'tto'", "Did you mean to?"),
        ("- a\n- b", "line 2: expected `field: value` lines, got a list", ""),
        ("just text", "line 2: expected `field: value` lines, got a single value", ""),
        ("to: a\nto: b", "line 3: the field 'to' is given twice", ""),
        ("labels: {a: 1, a: 2}", "line 2: the field 'a' is given twice", ""),
        ("to: &x a\ntitle: *x", "line 2: anchors (&name) are not allowed", ""),
        ("to: *x", "line 2: references (*name) are not allowed", ""),
        ("to: !!python/object:os.system x", "line 2: tags (!name) are not allowed", ""),
        ("to: !!timestamp 9999-99-99", "tags (!name) are not allowed", ""),
        ("<<: {to: a}", "there is no field '<<'", ""),
        ("? [a]\n: b", "a field's name must be a word", ""),
        ("to: [a", "line", ""),
        ("to: a\n\ttitle: b", "line 3: the front matter cannot be read", ""),
        ("to: 'a", "the front matter cannot be read", ""),
        ("to: a\n--- {to: b}", "line 3: expected one document, got a second one", ""),
        ("to: \x07", "the front matter cannot be read", ""),
        ("labels: " + "[" * 5_000, "nested deeper than 20 levels", ""),
        ("next: {next: {next: {next: {next: {next: {next: {next: {next: a}}}}}}}}", "deeper", ""),
        ("title: " + "x" * 70_000, "front matter may have 65536 characters", "below"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood(written: str, says: str, remedy: str) -> None:
    with pytest.raises(Invalid) as refusal:
        front(written)
    assert refusal.value.cause.startswith("task.md")
    assert says in refusal.value.cause
    assert remedy in refusal.value.remedy
    assert len(refusal.value.cause) < 300


def test_front_matter_that_never_ends() -> None:
    with pytest.raises(Invalid, match="opened with --- but never closed"):
        parse_task_text("---\nto: a\n\nDo it.\n", "task.md")


def test_references_cannot_explode() -> None:
    bomb = "a: &a [x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    )
    with pytest.raises(Invalid, match="not allowed"):
        front(bomb)


# ---- files that are no task files ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "UTF-8"),
        (b"to: a\0b", "NUL"),
        ("täsk".encode("latin-1"), "position 1"),
        ("---\nto: a\n---\n".encode("utf-16"), "UTF-8"),
        (b"---\nto: \xff\n---\n", "UTF-8"),
        pytest.param(b"x" * ((8 << 20) + 1), "8 MiB", id="too-large"),
    ],
)
def test_binary_and_too_large_files(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "task.md"
    path.write_bytes(content)
    with pytest.raises(Invalid, match=says) as refusal:
        read_task_file(path)
    assert "task.md" in refusal.value.cause and refusal.value.remedy


def test_the_largest_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "task.md"
    path.write_bytes(b"x" * (8 << 20))
    assert len(read_task_file(path).body) == 8 << 20


def test_paths_that_lead_to_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"There is no file .*absent\.md"):
        read_task_file(tmp_path / "absent.md")
    with pytest.raises(Invalid, match="is a folder"):
        read_task_file(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for path in (
        "nul\0byte",
        tmp_path / "file" / "below",
        tmp_path / "loop",
        "x" * 5_000,
        "\ud800",
    ):
        with pytest.raises(AgentqError, match=r"cannot be read|There is no file"):
            read_task_file(path)


def test_an_endless_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    for place in ("/dev/zero", "/dev/random", "/dev/tty"):
        if Path(place).exists():
            with pytest.raises(Invalid, match=f"'{place}' is a device"):
                read_task_file(place)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="is a pipe"):
        read_task_file(tmp_path / "pipe")
    with (tmp_path / "long").open("wb") as long:
        long.truncate(1 << 40)
    with pytest.raises(Invalid, match="8 MiB"):
        read_task_file(tmp_path / "long")


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"---\nto: a\n---\nfrom a pipe")
    os.close(writer)
    try:
        assert read_task_file(f"/dev/fd/{reader}").body == "from a pipe"
    finally:
        os.close(reader)


# ---- values that no file can hold today ----------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"too": "a"}', "task.md: there is no field 'too'"),
        ('{"title": "\\ud800"}', "surrogate"),
        ('{"title": "\\u0000"}', "NUL"),
        ('{"budget_usd": NaN}', "expected a number from 0"),
        ('{"budget_usd": Infinity}', "expected a number from 0"),
        ('{"labels": {"\\u0000": "x"}}', "NUL"),
        ('{"max_attempts": ' + "9" * 4_000 + "}", "a very large number"),
        ('{"id": ' + "9" * 4_000 + "}", "expected text, got a very large number"),
        ('{"to": ' + "[" * 400 + "]" * 400 + "}", "expected text, got a list"),
    ],
)
def test_bad_values(line: str, says: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_fields(json.loads(line), "task.md", {})
    assert says in refusal.value.cause


# ---- anything at all ----------------------------------------------------------------------------

names = st.sampled_from(
    ["id", "to", "ttl", "after", "next", "labels", "budget", "expect", "review", "wrong", "<<"]
)
scraps = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["- ", "? ", ": ", "&a", "*a", "!!int", "|", ">", "{", "}", "[", "]", "\t#"]),
    names.map(lambda name: f"\n{name}: "),
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(scraps, max_size=12).map("".join)))
@example("to: !!int abc")
@example("%YAML 9.9")
@example("a: !<x> b")
@example("'\\ud800'")
@example('"\\ud800"')
def test_any_front_matter_is_read_or_refused(written: str) -> None:
    try:
        fields = front(written)
    except Invalid:
        return
    assert check_fields(fields, "again", {}) == fields


@given(st.binary())
@example(b"---\n\xef\xbb\xbf\n---")
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.md"
    path.write_bytes(content)
    try:
        parsed = read_task_file(path)
    except Invalid:
        return
    assert content.decode().endswith(parsed.body)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(names, st.text()), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no defect
@given(st.dictionaries(names, values, max_size=4))
def test_any_fields_are_checked_or_refused(line: dict[str, object]) -> None:
    try:
        fields = check_fields(line, "task.md", {})
    except Invalid:
        return
    assert check_fields(fields, "again", {}) == fields
    assert json.loads(json.dumps(fields)) == fields


def test_both_readers_of_yaml_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    fields, lines = front_matter.load_front_matter(WHOLE.split("---\n")[1], "task.md", 2)
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert front_matter.load_front_matter(WHOLE.split("---\n")[1], "task.md", 2) == (fields, lines)
    assert lines["id"] == 2 and lines["lease_seconds"] == 32


def test_front_matter_of_characters_without_an_encoding() -> None:
    with pytest.raises(Invalid, match="is not text"):
        front_matter.locate_fields("a: \ud800", "here")
