"""What each tool is told for each word of `permissions`, and what it says back."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentq.agents.acp_permissions import Answers
from agentq.agents.permissions import LAUNCHER, launcher_commands, mode_option
from agentq.agents.registry import agent_named
from agentq.contracts.agent import (
    AttemptOutcome,
    Denied,
    Job,
    Launch,
    OtherPermissions,
)
from agentq.contracts.permissions import Permissions
from agentq.core.errors import Invalid
from agentq.core.values import replace
from agentq.settings.roles import TOOLS, commands_of, own_words, permissions_of, read_role
from tests.agents.jobs import a_job, captured, play, still

READ, EDIT, RUN, FULL = Permissions
FILE = Path("/etc/agentq/agentq.toml")


def job(word: Permissions | None, *command: str, sandboxed: bool = False, **more: Any) -> Job:
    return replace(
        a_job(*command, **more), permissions=word, commands=("make test", "pytest *"),
        sandboxed=sandboxed,
    )  # fmt: skip


def launch(tool: str, word: Permissions | None, *command: str, sandboxed: bool = False) -> Launch:
    return agent_named(tool).launch(job(word, *command, sandboxed=sandboxed))


def rules(launch: Launch, option: str) -> list[str]:
    return [word.partition("=")[2] for word in launch.argv if word.startswith(f"--{option}Tools=")]


# -- each tool, each word --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "mode"),
    [(READ, "dontAsk"), (EDIT, "acceptEdits"), (RUN, "acceptEdits"), (FULL, "bypassPermissions")],
)
def test_claude_is_told_its_mode_and_reads_no_settings_of_the_repository(
    word: Permissions, mode: str
) -> None:
    argv = launch("claude", word).argv
    assert argv[argv.index("--permission-mode") + 1] == mode
    assert argv[argv.index("--setting-sources") + 1] == "user"
    assert "--strict-mcp-config" in argv


def test_claude_may_run_the_launcher_verb_by_verb_and_what_the_role_names() -> None:
    read, edit, run = (launch("claude", word) for word in (READ, EDIT, RUN))
    assert rules(read, "allowed")[0] == "Edit(.agentq-task/**)"
    assert f"Bash({LAUNCHER} progress *)" in rules(read, "allowed")
    assert not any(rule.startswith("Edit") for rule in rules(edit, "allowed"))
    assert {"Bash(make test)", "Bash(pytest *)"} <= set(rules(run, "allowed"))
    verb = re.compile(r"Bash\(\.agentq-task/agentq [a-z]+ \*\)")
    for told in (read, edit, run):
        through = [rule for rule in rules(told, "allowed") if "Bash(.agentq" in rule]
        assert through and all(verb.fullmatch(rule) for rule in through)
        assert f"Edit({LAUNCHER})" in rules(told, "disallowed"), "nobody replaces the launcher"
    # Verbs that read or write files by name are for those who may run commands.
    assert not any("submit" in rule or "complete" in rule for rule in rules(edit, "allowed"))
    assert any("submit" in rule for rule in rules(run, "allowed"))
    assert not rules(launch("claude", FULL), "allowed")


def test_claude_may_be_root_only_inside_our_sandbox() -> None:
    assert "IS_SANDBOX" not in launch("claude", FULL).environment
    assert launch("claude", FULL, sandboxed=True).environment["IS_SANDBOX"] == "1"


@pytest.mark.parametrize(
    ("word", "sandboxed", "sandbox"),
    [
        (READ, False, "read-only"),
        (EDIT, False, "workspace-write"),
        (RUN, False, "workspace-write"),
        # No sandbox can be made within ours, which confines it as well.
        (READ, True, "danger-full-access"),
        (EDIT, True, "danger-full-access"),
        (FULL, True, "danger-full-access"),
    ],
)
def test_codex_is_told_its_sandbox(word: Permissions, sandboxed: bool, sandbox: str) -> None:
    argv = launch("codex", word, sandboxed=sandboxed).argv
    assert argv[argv.index("-s") + 1] == sandbox
    assert 'approval_policy="never"' in argv
    assert argv.index("-s") > argv.index("exec")


def test_codex_trusts_no_workspace_and_is_pointed_to_its_instructions(tmp_path: Path) -> None:
    """A folder that nobody has judged is trusted with its servers as soon as a sandbox is named."""
    (tmp_path / "to").mkdir()
    (tmp_path / 'with "signs').symlink_to(tmp_path / "to")
    asked = replace(job(EDIT), workspace=tmp_path / 'with "signs')
    told = agent_named("codex").launch(asked)
    (said,) = (word for word in told.argv if word.startswith("projects="))
    untrusted = {"trust_level": "untrusted"}
    named = (str(tmp_path / 'with "signs'), str(tmp_path / "to"))
    assert tomllib.loads(said)["projects"] == dict.fromkeys(named, untrusted)
    assert b"AGENTS.md" not in told.stdin
    (tmp_path / "to" / "AGENTS.md").write_text("Use tabs.")
    assert b"Read AGENTS.md first" in agent_named("codex").launch(asked).stdin
    own = agent_named("codex").launch(replace(asked, permissions=None))
    assert b"AGENTS.md" not in own.stdin, "it reads them by itself"


def test_codex_has_full_access_only_inside_our_sandbox() -> None:
    with pytest.raises(Invalid, match="takes Codex out of its own sandbox"):
        launch("codex", FULL)
    argv = agent_named("codex").launch(job(EDIT, session="0199-session")).argv
    assert argv.index("-s") < argv.index("resume"), "it is no option of `resume`"


@pytest.mark.parametrize(
    ("word", "mode"), [(READ, "default"), (EDIT, "default"), (RUN, "auto_edit"), (FULL, "yolo")]
)
def test_gemini_is_told_its_mode_and_trusts_the_workspace(word: Permissions, mode: str) -> None:
    told = launch("gemini", word)
    assert told.argv[told.argv.index("--approval-mode") + 1] == mode
    assert told.environment == {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
    assert bool(told.files) is (word is not FULL)


def gemini_rules(word: Permissions) -> list[dict[str, Any]]:
    told = launch("gemini", word)
    (path, policy), *none = told.files.items()
    assert not none and told.argv[told.argv.index("--admin-policy") + 1] == str(path)
    found: list[dict[str, Any]] = tomllib.loads(policy)["rule"]
    return sorted(found, key=lambda rule: -rule["priority"])


def gemini_decides(word: Permissions, tool: str, **given: str) -> str:
    """As its documentation says it: the rule of the highest priority that matches."""
    arguments = json.dumps(dict(sorted(given.items())), separators=(",", ":"))
    for rule in gemini_rules(word):
        names = rule["toolName"] if isinstance(rule["toolName"], list) else [rule["toolName"]]
        prefixes = rule.get("commandPrefix", [""])
        if tool not in names and "*" not in names:
            continue
        if not re.search(rule.get("argsPattern", ""), arguments):
            continue
        if any(given.get("command", "").startswith(prefix) for prefix in prefixes):
            return str(rule["decision"])
    return "ask_user"


def test_the_policy_of_gemini_allows_what_the_word_says() -> None:
    for word in (READ, EDIT, RUN):
        assert gemini_decides(word, "read_file", file_path="a.py") == "allow"
        assert (
            gemini_decides(word, "run_shell_command", command=f"{LAUNCHER} progress 4") == "allow"
        )
        assert gemini_decides(word, "run_shell_command", command="rm -rf /") == "deny"
        assert gemini_decides(word, "mcp_evil_run", command="x") == "deny"
        assert gemini_decides(word, "write_file", file_path=LAUNCHER, content="x") == "deny"
        inside = "/srv/attempt/workspace/.agentq-task/result.md"
        for path in (".agentq-task/result.md", "./.agentq-task/artifacts/a", inside):
            assert gemini_decides(word, "write_file", file_path=path, content="x") == "allow"
    assert gemini_decides(RUN, "run_shell_command", command="pytest -q") == "allow"
    assert gemini_decides(EDIT, "run_shell_command", command="pytest -q") == "deny"
    assert gemini_decides(EDIT, "replace", file_path="src/a.py") == "allow"
    for path in ("src/a.py", ".agentq-task/../src/a.py", "x/.agentq-task/a", "/etc/passwd"):
        smuggled = '"file_path":".agentq-task/a"'
        assert gemini_decides(READ, "write_file", content=smuggled, file_path=path) == "deny"


@pytest.mark.parametrize("name", [".gemini/settings.json", ".gemini/.env", ".env"])
def test_gemini_is_not_started_where_the_repository_would_say_what_it_may(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    for word in (READ, EDIT, RUN):
        with pytest.raises(Invalid, match=re.escape(name)):
            agent_named("gemini").launch(replace(job(word), workspace=tmp_path))
    assert agent_named("gemini").launch(replace(job(FULL), workspace=tmp_path)).argv


def opencode_decides(word: Permissions, kind: str, what: str) -> str:
    """As its documentation says it: of the rules that match the last one counts."""
    told = launch("opencode", word).environment
    assert told["OPENCODE_DISABLE_PROJECT_CONFIG"] == told["OPENCODE_PURE"] == "1"
    rules = json.loads(told["OPENCODE_PERMISSION"])
    rule = rules.get(kind, rules["*"])
    found = rule if isinstance(rule, str) else ""
    for pattern, decision in rule.items() if isinstance(rule, dict) else ():
        if re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), what):
            found = decision
    assert found in ("allow", "deny"), "an ask hangs"
    return str(found)


def test_opencode_is_told_what_is_allowed_and_asks_nothing() -> None:
    for word in (READ, EDIT, RUN):
        assert opencode_decides(word, "read", "a.py") == "allow"
        assert opencode_decides(word, "bash", f"{LAUNCHER} progress 40 reading") == "allow"
        assert opencode_decides(word, "bash", "rm -rf /") == "deny"
        assert opencode_decides(word, "edit", ".agentq-task/result.md") == "allow"
        assert opencode_decides(word, "edit", LAUNCHER) == "deny"
        assert opencode_decides(word, "external_directory", "/etc") == "deny"
        assert opencode_decides(word, "webfetch", "https://example.org") == "deny"
    assert opencode_decides(READ, "edit", "src/a.py") == "deny"
    assert opencode_decides(READ, "bash", f"{LAUNCHER} status > src/a.py") == "deny"
    assert opencode_decides(EDIT, "edit", "src/a.py") == "allow"
    assert opencode_decides(EDIT, "bash", "make test") == "deny"
    assert opencode_decides(RUN, "bash", "make test") == "allow"
    assert opencode_decides(FULL, "bash", "rm -rf /") == "allow"


@pytest.mark.parametrize("tool", ["claude", "codex", "gemini", "opencode"])
def test_a_role_with_its_own_words_is_told_nothing_else(tool: str) -> None:
    told = launch(tool, None)
    assert not told.environment and not told.files
    assert not mode_option(tool, told.argv)


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != "acp"])
@pytest.mark.parametrize("word", [READ, EDIT, RUN, FULL])
def test_every_word_can_be_explained(tool: str, word: Permissions) -> None:
    told = agent_named(tool).granted(job(word, sandboxed=tool == "codex"))  # type: ignore[attr-defined]
    assert told.may and told.enforced_by
    assert told.may_not or word is FULL or tool == "codex"


# -- answers over the Agent Client Protocol --------------------------------------------------------


def test_questions_over_acp_are_answered_by_the_word(tmp_path: Path) -> None:
    def answers(word: Permissions) -> Answers:
        return Answers(word, tmp_path, ("make test", "pytest *"))

    for word in (READ, EDIT, RUN):
        asked = answers(word)
        assert asked.may_call("read", ["a.py"], "") and asked.may_call("think", [], "")
        assert not asked.may_call("read", ["/etc/passwd"], "")
        assert asked.may_write(".agentq-task/result.md")
        assert not asked.may_write(LAUNCHER) and not asked.may_write(".agentq-task")
        assert not asked.may_write("../a") and not asked.may_write("/etc/passwd")
        assert asked.may_call("execute", [], f"{LAUNCHER} progress 4")
        assert not asked.may_call("execute", [], f"{LAUNCHER} progress $(touch x)")
        assert not asked.may_call("execute", [], f"{LAUNCHER} progress 4; touch x")
        assert not asked.may_call("execute", [], f"{LAUNCHER} prune --yes")
        assert not asked.may_call("execute", [], "")
        assert not asked.may_call("fetch", [], "") and not asked.may_call("", [], "")
        assert not asked.may_call("edit", [], ""), "of which file is not said"
    assert not answers(READ).may_call("edit", ["a.py"], "")
    assert answers(EDIT).may_call("edit", ["a.py"], "")
    assert not answers(EDIT).may_call("execute", [], "make test")
    assert answers(RUN).may_call("execute", [], "make test")
    assert answers(RUN).may_call("execute", [], "pytest -q tests")
    assert not answers(RUN).may_call("execute", [], "pytest -q && rm -rf /")
    assert answers(FULL).may_call("other", [], "") and answers(FULL).may_write("/etc/passwd")


def test_a_link_out_of_the_workspace_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "out").symlink_to(tmp_path)
    (tmp_path / "w" / ".agentq-task").symlink_to(tmp_path / "w")
    asked = Answers(READ, tmp_path / "w", ())
    assert not asked.may_write("out/a")
    assert not asked.may_write(".agentq-task/a"), "which is a.py of the workspace"


# -- what a tool says back -------------------------------------------------------------------------


def init(mode: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "init", "permissionMode": mode, "session_id": "s"}


def test_claude_must_not_go_on_in_another_mode_than_it_was_told() -> None:
    agent = agent_named("claude")
    for word, mode in ((READ, "dontAsk"), (EDIT, "acceptEdits"), (FULL, "bypassPermissions")):
        assert not play(agent, [init(mode)], job=job(word)).only(OtherPermissions)
    (found,) = play(agent, [init("bypassPermissions")], job=job(EDIT)).only(OtherPermissions)
    assert "--permission-mode acceptEdits" in found.reason and "bypassPermissions" in found.reason
    # One that was told nothing, or says nothing, is not judged.
    assert not play(agent, [init("auto")], job=job(None)).only(OtherPermissions)
    assert not play(agent, [init("")], job=job(EDIT)).only(OtherPermissions)


def denial(id: str, **more: Any) -> dict[str, Any]:
    return {"tool_name": "Bash", "tool_use_id": id, **more}


def test_a_denial_counts_once_though_claude_tells_it_twice() -> None:
    """The live event has no input; the result repeats it with the input. A new try is another."""
    from agentq.agents.claude import Claude

    def call(id: str) -> dict[str, Any]:
        use = {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": "git commit"}}
        return {"type": "assistant", "message": {"id": f"m{id}", "content": [use]}}

    live = [{"type": "system", "subtype": "permission_denied", **denial(each)} for each in "12"]
    given = {"tool_input": {"command": "git commit"}}
    repeated = [denial("1", **given), denial("2", **given), denial("3", **given)]
    result = {"type": "result", "is_error": False, "result": "done", "permission_denials": repeated}
    played = play(Claude(still), [call("1"), call("2"), *live, result], job=job(EDIT))
    assert played.verdict.denials == ("Bash: git commit",) * 3
    assert len(played.only(Denied)) == 3


@pytest.mark.parametrize(
    ("tool", "denied"),
    [
        ("claude", ("Write: a.txt", "Bash: git commit -m x", "Bash: git commit -m x")),
        ("gemini", ("write_file: a.txt", *("run_shell_command: git commit -m x",) * 2)),
        ("opencode", ("write: a.txt", "bash: git commit -m x", "bash: git commit -m x")),
    ],
)
def test_what_the_real_tools_deny_is_heard_once_each(tool: str, denied: tuple[str, ...]) -> None:
    """They were told `read` and tried a file, a commit, their result and the commit once more."""
    played = play(agent_named(tool), captured(f"{tool}_denied.jsonl"), job=job(READ))
    assert played.verdict.outcome is AttemptOutcome.COMPLETED
    assert played.verdict.denials == denied
    assert tuple(event.what for event in played.only(Denied)) == denied
    assert not played.only(OtherPermissions)


def test_a_patch_that_codex_refuses_is_seen_on_its_standard_error() -> None:
    line = (
        b"2026-11-17T08:00:00Z ERROR codex_core::tools::router: error=patch rejected: writing is"
        b" blocked by read-only sandbox; rejected by user approval settings"
    )
    ends = {"type": "turn.completed", "usage": {}}
    said = {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}}
    played = play(agent_named("codex"), [said, ends], errors=[line, line, b"rejected"])
    (found,) = played.verdict.denials
    assert found.startswith("patch rejected: writing is blocked")
    later = line.replace(b"08:00:00Z", b"08:00:01.500001Z")
    played = play(agent_named("codex"), [said, ends], errors=[line, later])
    assert len(played.verdict.denials) == 2, "refused twice, in the same words"


def test_a_write_that_the_sandbox_of_codex_keeps_from_happening_is_a_denial() -> None:
    """As codex 0.166.0 prints it under `-s workspace-write`."""

    def ran(id: str, command: str, output: str, code: int) -> list[dict[str, Any]]:
        item = {"id": id, "type": "command_execution", "command": f"/bin/bash -lc '{command}'"}
        began = {**item, "aggregated_output": "", "exit_code": None, "status": "in_progress"}
        status = "failed" if code else "completed"
        ended = {**item, "aggregated_output": output, "exit_code": code, "status": status}
        return [{"type": "item.started", "item": began}, {"type": "item.completed", "item": ended}]

    outside = "/bin/bash: line 1: /var/x: Read-only file system\n"
    index = "fatal: Unable to create '/w/.git/index.lock': Read-only file system\n"
    lines = [
        *ran("item_0", "echo x > /var/x", outside, 1), *ran("item_1", "git commit", index, 128),
        *ran("item_2", "make test", "2 failed\n", 2),
        *ran("item_3", "dmesg", outside, 0),
        {"type": "turn.completed", "usage": {}},
    ]  # fmt: skip
    played = play(agent_named("codex"), lines, job=job(EDIT))
    denied = ("/bin/bash -lc 'echo x > /var/x'", "/bin/bash -lc 'git commit'")
    assert played.verdict.denials == denied and len(played.only(Denied)) == 2


def test_what_opencode_and_gemini_deny_is_named_by_what_was_tried() -> None:
    state = {
        "status": "error", "input": {"filePath": "a.py"},
        "error": "The user has specified a rule which prevents you from using this tool call.",
    }  # fmt: skip
    part = {"tool": "write", "callID": "call_1", "state": state}
    event = {"type": "tool_use", "sessionID": "ses", "part": part}
    played = play(agent_named("opencode"), [event, event])
    assert played.verdict.denials == ("write: a.py",)
    use = {"type": "tool_use", "tool_name": "write_file", "tool_id": "w1",
           "parameters": {"file_path": "a.py"}}  # fmt: skip
    error = {"type": "policy_violation", "message": "Tool execution denied by policy."}
    refused = {"type": "tool_result", "tool_id": "w1", "status": "error", "error": error}
    played = play(agent_named("gemini"), [use, refused])
    assert played.verdict.denials == ("write_file: a.py",)


# -- the settings of a role ------------------------------------------------------------------------


def test_the_default_is_edit_and_read_for_whoever_reviews() -> None:
    role = read_role("r", {"agent": "claude"}, FILE)
    assert permissions_of(role, "implementation-worker") is EDIT
    assert permissions_of(role, "review-worker") is READ
    assert permissions_of(role, "implementation-worker", "review") is READ
    full = read_role("r", {"agent": "claude", "permissions": "full"}, FILE)
    assert permissions_of(full, "reviewer", "review") is FULL, "what is said counts"
    own = read_role("r", {"command": ["./work.sh"]}, FILE)
    assert permissions_of(own, "implementation-worker") is None


def test_a_role_says_once_what_its_agents_may_do() -> None:
    said = {"agent": "claude", "command": ["claude", "--permission-mode=acceptEdits"]}
    role = read_role("r", said, FILE)
    assert own_words(role) == "--permission-mode=acceptEdits"
    assert permissions_of(role, "r") is None, "its own words are respected"
    with pytest.raises(Invalid, match="says twice"):
        read_role("r", said | {"permissions": "edit"}, FILE)
    acp = {"agent": "acp", "command": ["gemini", "--acp"], "options": {"permissions": "allow"}}
    assert permissions_of(read_role("r", acp, FILE), "r") is None
    with pytest.raises(Invalid, match="says twice"):
        read_role("r", acp | {"permissions": "edit"}, FILE)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("codex", "-s read-only"), ("codex", "-sread-only"), ("codex", "-c sandbox_mode=x"),
        ("codex", "--dangerously-bypass-approvals-and-sandbox"), ("gemini", "-y"),
        ("gemini", "--approval-mode yolo"), ("opencode", "--auto"),
        ("claude", "--dangerously-skip-permissions"),
    ],
)  # fmt: skip
def test_the_words_by_which_a_command_names_a_mode_are_known(tool: str, words: str) -> None:
    assert mode_option(tool, (tool, *words.split()))
    assert not mode_option(tool, (tool, "--model", "m", "-c", "model=x"))


def test_permissions_that_cannot_hold_are_refused_with_the_settings() -> None:
    with pytest.raises(Invalid, match="read or edit or run or full"):
        read_role("r", {"agent": "claude", "permissions": "everything"}, FILE)
    with pytest.raises(Invalid, match="a program of your own"):
        read_role("r", {"command": ["./work.sh"], "permissions": "read"}, FILE)
    codex = {"agent": "codex", "permissions": "full"}
    with pytest.raises(Invalid, match="out of its own sandbox"):
        read_role("r", codex, FILE)
    assert read_role("r", codex | {"sandbox": "bwrap"}, FILE).permissions == "full"


def test_the_check_of_a_role_may_be_run_whole_and_in_parts() -> None:
    role = read_role("r", {"agent": "claude", "verify": "make lint && make test", "commands": ["a"]}, FILE)  # fmt: skip  # noqa: E501
    assert commands_of(role) == ("make lint && make test", "make lint", "make test", "a")
    assert commands_of(read_role("r", {"agent": "claude", "commands": ["a"]}, FILE)) == ("a",)


def test_no_rule_allows_the_launcher_as_a_whole() -> None:
    for word in (READ, EDIT, RUN):
        assert LAUNCHER not in launcher_commands(word)
        assert not any("*" in command for command in launcher_commands(word))
