"""`command` and `python` with real processes: prompt in, result and exit code out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.agents.command import OUTPUT_BYTES_MAX, Command
from agentq.agents.python import Python
from agentq.contracts.agent import (
    Agent,
    AgentMessage,
    AttemptOutcome,
    Denied,
    Exit,
    Job,
    Limited,
    Spent,
)
from agentq.core.errors import Invalid
from agentq.core.task import Usage
from tests.agents.jobs import NOW, SECOND, Played, a_job, play, still

SECONDS_MAX = 30


def run(agent: Agent, job: Job) -> Played:
    """Start what the adapter describes, as a worker would, and tell its listener everything."""
    launch = agent.launch(job)
    done = subprocess.run(
        launch.argv,
        input=launch.stdin,
        cwd=job.workspace,
        env={"PATH": "/usr/bin:/bin", "AGENTQ_RESULT": str(job.result), **launch.environment},
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    code = done.returncode
    return play(
        agent,
        done.stdout.splitlines(),
        Exit(signal=-code) if code < 0 else Exit(code),
        errors=done.stderr.splitlines(),
        job=job,
    )


def in_folder(folder: Path, *command: str, **fields: Any) -> Job:
    job = a_job(*command, folder=folder, **fields)
    job.workspace.mkdir(exist_ok=True)
    return job


def shell(folder: Path, script: str, **fields: Any) -> Played:
    return run(Command(still), in_folder(folder, "sh", "-c", script, **fields))


# -- command ---------------------------------------------------------------------------------------


def test_a_program_reads_the_prompt_and_prints_the_result(tmp_path: Path) -> None:
    played = shell(tmp_path, "tr a-z A-Z; pwd; echo noise >&2", prompt="do this\n")
    verdict = played.verdict
    assert verdict.outcome is AttemptOutcome.COMPLETED
    assert verdict.result == f"DO THIS\n{tmp_path}/workspace"
    assert verdict.summary == f"DO THIS {tmp_path}/workspace"


def test_a_program_writes_the_result_into_its_file(tmp_path: Path) -> None:
    played = shell(tmp_path, 'echo "the result" > "$AGENTQ_RESULT"; cat > /dev/null')
    assert played.verdict.outcome is AttemptOutcome.COMPLETED and played.verdict.result == ""
    assert (tmp_path / "result.md").read_text() == "the result\n"


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("exit 0", AttemptOutcome.COMPLETED),
        ("exit 1", AttemptOutcome.TRANSIENT),
        ("exit 64", AttemptOutcome.INVALID),
        ("exit 65", AttemptOutcome.INVALID),
        ("exit 69", AttemptOutcome.TRANSIENT),
        ("exit 75", AttemptOutcome.TRANSIENT),
        ("exit 77", AttemptOutcome.REFUSED),
        ("exit 78", AttemptOutcome.INVALID),
        ("exit 124", AttemptOutcome.TIMEOUT),
        ("/dev/null", AttemptOutcome.SURROUNDINGS),
        ("no-such-program-anywhere", AttemptOutcome.SURROUNDINGS),
        ("kill -9 $$", AttemptOutcome.CRASHED),
        ("sh -c 'kill -11 $$'; exit $?", AttemptOutcome.CRASHED),
    ],
)
def test_the_exit_code_decides(tmp_path: Path, script: str, outcome: AttemptOutcome) -> None:
    verdict = shell(tmp_path, f"echo why >&2; {script}").verdict
    assert verdict.outcome is outcome
    assert outcome is AttemptOutcome.COMPLETED or "why" in verdict.summary


def test_a_program_speaks_to_the_worker(tmp_path: Path) -> None:
    played = shell(
        tmp_path,
        """cat <<'END'
{"agentq": {"progress": 40, "note": "half  way"}}
{"agentq": {"progress": 1e9}}
{"agentq": {"cost": {"usd": 0.5, "tokens": 10, "turns": 1}}}
{"agentq": {"cost": {"usd": -3, "tokens": "many"}}}
{"agentq": {"denied": "writing to /etc"}}
{"agentq": "nonsense"}
{"other": {"agentq": 1}}
the result
END""",
    )
    assert played.only(AgentMessage) == [AgentMessage("half way", 40), AgentMessage("", 100)]
    assert played.only(Spent) == [Spent(Usage(0.5, 10, 1))]
    assert played.only(Denied) == [Denied("writing to /etc")]
    assert played.verdict.denials == ("writing to /etc",)
    assert played.verdict.result == '{"other": {"agentq": 1}}\nthe result'


def test_a_program_hits_a_quota_in_either_way(tmp_path: Path) -> None:
    at = NOW // 1000 + 60
    told = f"""echo '{{"agentq": {{"quota": {{"resets_at": {at}, "reason": "used up"}}}}}}'"""
    played = shell(tmp_path, f"{told}; exit 1")
    assert played.only(Limited) == [Limited(NOW + 60 * SECOND, "used up")]
    assert played.verdict.outcome is AttemptOutcome.QUOTA
    assert played.verdict.resets_at == NOW + 60 * SECOND
    assert shell(tmp_path, told).verdict.outcome is AttemptOutcome.COMPLETED, "it got over it"
    words = "echo '429 Too Many Requests: try again in 20s.' >&2; exit 75"
    verdict = shell(tmp_path, words).verdict
    assert verdict.outcome is AttemptOutcome.QUOTA and verdict.resets_at == NOW + 20 * SECOND


def test_a_program_asks_a_question(tmp_path: Path) -> None:
    verdict = shell(tmp_path, """echo '{"agentq": {"question": "This or that?"}}'""").verdict
    assert (verdict.outcome, verdict.summary) == (AttemptOutcome.BLOCKED, "This or that?")


def test_the_end_of_a_flood_is_kept(tmp_path: Path) -> None:
    verdict = shell(tmp_path, "seq 1 200000").verdict
    assert len(verdict.result) <= OUTPUT_BYTES_MAX and verdict.result.endswith("\n200000")


def test_no_command_is_refused() -> None:
    with pytest.raises(Invalid, match="there are none"):
        Command(still).launch(a_job())


# -- python ----------------------------------------------------------------------------------------

MODULE = """
import asyncio, collections.abc, json, os, sys
from pathlib import Path
from agentq.core.errors import Invalid, Refused

def upper(prompt): return prompt.upper()
def raw(prompt: str) -> bytes: return b"\\xff" + prompt.encode()
def by_name(task): return {"id": task["id"], "labels": task["labels"], "prompt": task["prompt"]}
def by_annotation(work: collections.abc.Mapping[str, object]) -> list: return [work["epoch"]]
def by_dict(work: "dict[str, str]"): return work["workspace"]
async def later(prompt):
    await asyncio.sleep(0)
    return "awaited " + prompt
def nothing(prompt): print("printed", prompt)
def path(prompt): return sys.path[0]
def fails(prompt): raise RuntimeError("the reason\\nof it")
def wrong(prompt): raise Invalid("This cannot be done.", "Ask otherwise.")
def refuses(prompt): raise Refused("Not that.")
def limited(prompt): raise OSError("HTTP 429: rate limit, try again in 20s")
def odd(prompt): return object()
def leaves(prompt): sys.exit(77)
def dies(prompt): os.abort()
def speaks(prompt): print('{"agentq": {"progress": 7}}'); return "ok"
def too_many(one, two): pass
class Holder:
    @staticmethod
    def inside(prompt): return "inside"
number = 7
"""


def python(folder: Path, target: str, **fields: Any) -> tuple[Played, bytes | None]:
    job = in_folder(folder, target, **fields)
    (job.workspace / "my_agents.py").write_text(MODULE)
    (job.workspace / "bad_import.py").write_text("raise ValueError('at import')")
    (job.workspace / "slow_import.py").write_text("raise OSError('not now')")
    (job.workspace / "bad_syntax.py").write_text("def (")
    # A file of the workspace does not stand in for what the host itself needs.
    (job.workspace / "json.py").write_text("raise SystemExit('the wrong json')")
    played = run(Python(still), job)
    return played, job.result.read_bytes() if job.result.exists() else None


@pytest.mark.parametrize(
    ("function", "result"),
    [
        ("upper", b"WORK"),
        ("raw", b"\xffwork"),
        (
            "by_name",
            b'{\n  "id": "task-1",\n  "labels": {\n    "a": "b"\n  },\n  "prompt": "work"\n}',
        ),
        ("by_annotation", b"[\n  1\n]"),
        ("later", b"awaited work"),
        ("Holder.inside", b"inside"),
        ("nothing", None),
    ],
)
def test_what_a_function_returns_is_the_result(
    tmp_path: Path, function: str, result: bytes | None
) -> None:
    played, written = python(tmp_path, f"my_agents:{function}", prompt="work", labels={"a": "b"})
    assert played.verdict.outcome is AttemptOutcome.COMPLETED, played.verdict.summary
    assert written == result
    assert played.verdict.result == ("printed work" if result is None else "")


def test_the_workspace_comes_first(tmp_path: Path) -> None:
    for function in ("path", "by_dict"):
        _, written = python(tmp_path, f"my_agents:{function}")
        assert written == str(tmp_path / "workspace").encode()


@pytest.mark.parametrize(
    ("target", "outcome", "words"),
    [
        ("my_agents:fails", AttemptOutcome.TRANSIENT, "RuntimeError: the reason of it"),
        ("my_agents:wrong", AttemptOutcome.INVALID, "This cannot be done. Ask otherwise."),
        ("my_agents:refuses", AttemptOutcome.REFUSED, "Not that."),
        ("my_agents:limited", AttemptOutcome.QUOTA, "HTTP 429"),
        ("my_agents:leaves", AttemptOutcome.REFUSED, "exit code 77"),
        ("my_agents:dies", AttemptOutcome.CRASHED, "signal 6"),
        ("my_agents:odd", AttemptOutcome.INVALID, "cannot be written down"),
        ("my_agents:too_many", AttemptOutcome.INVALID, "must take one argument"),
        ("my_agents:number", AttemptOutcome.INVALID, "is not a function but int"),
        ("my_agents:missing", AttemptOutcome.INVALID, "has no attribute 'missing'"),
        ("no_such_module:main", AttemptOutcome.INVALID, "No module named 'no_such_module'"),
        ("bad_import:main", AttemptOutcome.INVALID, "ValueError: at import"),
        ("bad_syntax:main", AttemptOutcome.INVALID, "SyntaxError"),
        ("slow_import:main", AttemptOutcome.TRANSIENT, "OSError: not now"),
    ],
)
def test_what_goes_wrong_is_told_apart(
    tmp_path: Path, target: str, outcome: AttemptOutcome, words: str
) -> None:
    played, written = python(tmp_path, target)
    assert played.verdict.outcome is outcome and words in played.verdict.summary
    assert written is None


def test_a_function_speaks_to_the_worker(tmp_path: Path) -> None:
    played, written = python(tmp_path, "my_agents:speaks")
    assert played.only(AgentMessage) == [AgentMessage("", 7)] and written == b"ok"


def test_the_target_is_checked_before_anything_starts() -> None:
    for command in ((), ("module",), ("a:b", "c"), ("-c:x",), ("a b:c",), ("a:",)):
        with pytest.raises(Invalid, match="module:function"):
            Python(still).launch(a_job(*command))
    assert Python(still).launch(a_job("a.b:c.d")).argv[0] == sys.executable
