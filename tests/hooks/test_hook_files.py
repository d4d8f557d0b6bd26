"""Hook files: what they say, and what is wrong with them, by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core.errors import AgentqError, Invalid, NotFound, Unavailable
from agentq.hooks.installed import check_hooks
from agentq.hooks.model import BACKLOG_MAX, BYTES_MAX
from agentq.hooks.parsing import parse_hook
from agentq.hooks.reading import HookFolder, list_hooks, read_hook, secret_of
from tests.hooks.files import ISSUES, SECRET, write_hook

FILE = Path("hooks/x.md")
HEAD = "verify: bearer\nsecret: env:S\n"


def parsed(front_matter: str, body: str = "Do it.") -> object:
    return parse_hook(f"---\n{front_matter}\n---\n{body}\n".encode(), "x", FILE)


def test_a_hook_of_github() -> None:
    hook = parse_hook(ISSUES.encode(), "issues", FILE)
    assert (hook.description, hook.secret) == ("Issues become tasks", "env:HOOK_SECRET")
    assert (hook.proof.kind, hook.proof.header, hook.id_header) == (
        "github", "x-hub-signature-256", "x-github-delivery",
    )  # fmt: skip
    assert (hook.bytes_max, hook.backlog) == (BYTES_MAX, BACKLOG_MAX)
    (rule,) = hook.rules
    assert (rule.name, rule.line, rule.when) == ("rule", 5, "payload.action == 'opened'")
    assert rule.task["to"] == "triage"
    assert hook.body.startswith("Look at {{ payload")


def test_everything_that_a_hook_may_say() -> None:
    text = """---
verify: hmac
secret: file:keys/hook
signature: X-Mine
prefix: "v0="
algorithm: sha512
encoding: base64
timestamp: X-At
tolerance: 1m
delivery_id: X-Id
max_bytes: 100
backlog: 5
remember: 90d
rules:
  - when: true
    task: {role: triage, title: one, budget: 2, priority: high, approval: {remind: 1h}}
  - name: deploys
    when: payload.ok
    workflow: deploy
    inputs: {env: "{{ payload.env }}", parts: ["{{ hook }}", 2]}
---
"""
    hook = parse_hook(text.encode(), "x", FILE)
    assert hook.proof == type(hook.proof)("hmac", "x-mine", "v0=", "sha512", "base64", "x-at", 60)
    assert (hook.id_header, hook.bytes_max, hook.backlog) == ("x-id", 100, 5)
    assert hook.remember_seconds == 90 * 86400
    first, second = hook.rules
    assert (first.name, first.when, first.task["to"]) == ("rule-1", "true", "triage")
    assert first.task["budget"] == {"usd": 2} and first.task["requires_approval"]
    assert (second.name, second.workflow) == ("deploys", "deploy")


@pytest.mark.parametrize(
    ("front_matter", "said"),
    [
        pytest.param("secret: env:S\ntask: {to: w}", "line 1: a hook says how", id="no verify"),
        pytest.param("verify: rsa\nsecret: env:S\ntask: {to: w}", "line 2: verify is one of",
                     id="unknown verify"),
        pytest.param("verify: bearer\ntask: {to: w}", "secret names where", id="no secret"),
        pytest.param("verify: bearer\nsecret: hunter2\ntask: {to: w}", "line 3: secret names where",
                     id="a literal secret"),
        pytest.param(HEAD, "a rule has a task or a workflow", id="nothing to do"),
        pytest.param(HEAD + "task: {to: w}\nworkflow: x", "a task or a workflow", id="both"),
        pytest.param(HEAD + "task: []", "line 4: a task has fields", id="no fields"),
        pytest.param(HEAD + "task: {to: w}\ninputs: {a: 1}", "line 5: inputs are for", id="inputs"),
        pytest.param(HEAD + "task: {title: x}", "line 4: ", id="no role"),
        pytest.param(HEAD + "task: {to: w, role: v}", "line 4: role and to", id="two roles"),
        pytest.param(HEAD + "task: {to: w, priority: soon}", "line 4", id="bad priority"),
        pytest.param(HEAD + "task: {to: w, colour: red}", "line 4: there is no field 'colour'",
                     id="unknown field of a task"),
        pytest.param(HEAD + "tsk: {to: w}", "line 4: there is no field 'tsk'", id="unknown field"),
        pytest.param(HEAD + "when: 'payload.('\ntask: {to: w}", "line 4: when: ", id="no CEL"),
        pytest.param(HEAD + "when: [1]\ntask: {to: w}", "line 4: when is a condition", id="a list"),
        pytest.param(HEAD + "when: " + "1" * 5000 + "\ntask: {to: w}", "4000 characters",
                     id="a long condition"),
        pytest.param(HEAD + "task: {to: w, title: '{{ x'}", "task.title from line 4 on, line 1",
                     id="half a template"),
        pytest.param(HEAD + "task: {to: w, labels: {a: '{{ x'}}", "labels", id="a label"),
        pytest.param(HEAD + "task: {to: w, verify: 'run {{ payload.x }}'}",
                     "line 4: verify takes no template", id="a command of the sender"),
        pytest.param(HEAD + "task: {to: '{{ payload.x }}'}", "to takes no template", id="a role"),
        pytest.param(HEAD + "max_bytes: 0\ntask: {to: w}", "line 4: max_bytes is", id="no bytes"),
        pytest.param(HEAD + "max_bytes: true\ntask: {to: w}", "line 4: max_bytes is", id="true"),
        pytest.param(HEAD + "backlog: many\ntask: {to: w}", "line 4: backlog is", id="backlog"),
        pytest.param(HEAD + "remember: soon\ntask: {to: w}", "line 4: remember", id="duration"),
        pytest.param(HEAD + "signature: X-A\ntask: {to: w}", "line 4: signature is for",
                     id="a signature of a bearer"),
        pytest.param(HEAD + "delivery_id: 'a b'\ntask: {to: w}", "line 4: delivery_id is the name",
                     id="no header"),
        pytest.param(HEAD + "description: [1]\ntask: {to: w}", "line 4: description is", id="text"),
        pytest.param(HEAD + "rules: {}", "line 4: rules are a list", id="no list of rules"),
        pytest.param(HEAD + "rules: [1]", "a rule has fields", id="a rule that is none"),
        pytest.param(HEAD + "rules: []", "rules are a list", id="no rules"),
        pytest.param(HEAD + "when: true\nrules: [{task: {to: w}}]", "line 4: when stands beside",
                     id="beside rules"),
        pytest.param(HEAD + "rules:\n- {name: A, task: {to: w}}", "line 5: a rule is named",
                     id="a bad name"),
        pytest.param(HEAD + "rules:\n- {name: a, task: {to: w}}\n- {name: a, task: {to: w}}",
                     "line 6: two rules are named a", id="two of one name"),
        pytest.param(HEAD + "workflow: ''", "line 4: workflow is the name", id="no workflow"),
        pytest.param(HEAD + "workflow: x\ninputs: [1]", "line 5: inputs are", id="list of inputs"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(front_matter: str, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        parsed(front_matter)
    assert said in caught.value.cause and caught.value.cause.startswith("hooks/x.md")
    assert "hunter2" not in str(caught.value)


def test_a_task_says_what_is_to_be_done() -> None:
    with pytest.raises(Invalid, match="does not say what"):
        parsed(HEAD + "task: {to: w}", "")
    with pytest.raises(Invalid, match="from line 6 on"):
        parsed(HEAD + "task: {to: w}", "{% if")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"no front matter", "starts with `---`", id="none"),
        pytest.param(b"---\nverify: [\n---\n", "line 3", id="no YAML"),
        pytest.param(b"\xff\xfe", "UTF-8", id="no text"),
        pytest.param(b"---\na: 1\0\n---", "NUL", id="a NUL"),
        pytest.param(b"x" * (256 * 1024 + 1), "256 KiB", id="too large"),
    ],
)
def test_what_is_no_hook_file(content: bytes, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        parse_hook(content, "x", FILE)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_hook_or_refused_in_words(content: bytes) -> None:
    for text in (content, b"---\nverify: bearer\nsecret: env:S\n" + content + b"\n---\n"):
        try:
            parse_hook(text, "x", FILE)
        except Invalid as error:
            assert error.cause  # noqa: PT017 - many reasons


def test_files_are_read_anew_and_a_bad_one_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    folder = tmp_path / "hooks"
    assert list_hooks(folder) == []
    write_hook(folder, "issues", ISSUES)
    write_hook(folder, "bad", "---\nverify: github\n---\n")
    write_hook(folder, "unset", ISSUES.replace("HOOK_SECRET", "UNSET_SECRET"))
    (folder / "notes.txt").write_text("no hook")
    bad, issues, unset = list_hooks(folder)
    assert "secret names where" in bad.error and bad.hook is None
    assert (issues.name, issues.error) == ("issues", "") and issues.hook is not None
    assert "UNSET_SECRET, which is not set" in unset.error and unset.hook is not None
    assert secret_of(issues.hook) == SECRET
    write_hook(folder, "issues", ISSUES.replace("opened", "closed"))
    assert "closed" in read_hook(folder, "issues").rules[0].when


def test_a_server_sees_a_changed_file_and_a_changed_secret(tmp_path: Path) -> None:
    folder, key = tmp_path / "hooks", tmp_path / "key"
    hooks = HookFolder(folder)
    with pytest.raises(NotFound):
        hooks.find("issues")
    write_hook(folder, "issues", ISSUES.replace("env:HOOK_SECRET", "file:key"))
    with pytest.raises(Unavailable, match="key"):
        hooks.find("issues")
    key.write_text("first")
    hook, secret = hooks.find("issues")
    assert secret == "first" and hooks.find("issues") == (hook, secret)
    key.write_text("second one")
    assert hooks.find("issues") == (hook, "second one")
    write_hook(folder, "issues", ISSUES.replace("env:HOOK_SECRET", "file:key") + "more")
    assert hooks.find("issues")[0].body.endswith("more")
    (folder / "issues.md").unlink()
    with pytest.raises(NotFound):
        hooks.find("issues")


def test_a_hook_that_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "hooks"
    with pytest.raises(NotFound, match="no hook 'issues'"):
        read_hook(folder, "issues")
    write_hook(folder, "issues", ISSUES)
    with pytest.raises(NotFound) as caught:
        read_hook(folder, "issuez")
    assert caught.value.remedy == "Did you mean issues?"
    for name in ("", "../issues", "a/b", ".issues", "x" * 100, "issues\n"):
        with pytest.raises(NotFound):
            read_hook(folder, name)
    (folder / "folder.md").mkdir()
    with pytest.raises(AgentqError, match=r"folder\.md"):
        read_hook(folder, "folder")


def test_a_secret_of_standard_webhooks_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hook(tmp_path / "hooks", "x", ISSUES.replace("github", "standard"))
    hook = read_hook(tmp_path / "hooks", "x")
    with pytest.raises(Unavailable):
        secret_of(hook)
    monkeypatch.setenv("HOOK_SECRET", "!")
    with pytest.raises(Invalid, match="base64"):
        secret_of(hook)


def test_checking_names_roles_and_workflows_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    folder, workflows = tmp_path / "hooks", tmp_path / "workflows"
    write_hook(folder, "issues", ISSUES)
    write_hook(folder, "run", "---\nverify: bearer\nsecret: env:HOOK_SECRET\nworkflow: deploy\n---")
    write_hook(folder, "unset", ISSUES.replace("HOOK_SECRET", "UNSET_SECRET"))
    wanted, problems = check_hooks(folder, workflows, frozenset({"builder"}))
    assert wanted == ["issues", "run", "unset"]
    assert [(hook, text.partition(": ")[2]) for hook, text, _ in problems] == [
        ("issues", "no role 'triage' is in the settings."),
        ("run", "There is no workflow 'deploy'."),
        ("unset", ""),
        ("unset", "no role 'triage' is in the settings."),
    ]
    assert check_hooks(folder, workflows, frozenset({"triage"}), ("issues",)) == (["issues"], [])
    assert check_hooks(folder, workflows, frozenset(), ("nope",))[1][0][0] == "nope"
