"""Which names stand for a worker's word, however they are written."""

from __future__ import annotations

import pytest

from agentq.core.reserved_names import is_log, is_reserved, is_worker_record, output_log, reserved

RESERVED = (
    "agentq", "agentq/verdict.json", "agentq/a/b", "AgentQ/verdict.json", "agentq./x", "output.log",
    "Output.LOG", "output.log ", "output.log/x", "output-2.log", "output-10.log", "verify.log",
    "changes.patch", "commits.txt",
)  # fmt: skip
FREE = (
    "result.md", "summary.md", "patch.diff", "logs/output.log", "my/agentq/verdict.json",
    "agentq.md", "output", "output-.log", "output-x.log", "output.log.md", "verify.md", "",
)  # fmt: skip


@pytest.mark.parametrize("name", RESERVED)
def test_only_a_worker_may(name: str) -> None:
    assert is_reserved(name)
    refusal = reserved(name)
    assert (refusal.code, refusal.exit_status) == ("reserved_name", 4)
    assert name in refusal.cause and "output-N.log" in refusal.cause


@pytest.mark.parametrize("name", FREE)
def test_anybody_may(name: str) -> None:
    assert not is_reserved(name)


def test_what_a_worker_calls_its_files_is_reserved() -> None:
    assert [output_log(run) for run in (1, 2, 11)] == [
        "output.log",
        "output-2.log",
        "output-11.log",
    ]
    assert all(is_reserved(output_log(run)) for run in range(1, 12))


def test_records_are_in_the_workers_folder() -> None:
    assert is_worker_record("agentq/verdict.json")
    assert not is_worker_record("output.log") and not is_worker_record("agentq.md")


def test_what_is_a_log() -> None:
    assert all(map(is_log, ("output.log", "verify.log", output_log(2), output_log(11))))
    assert not any(map(is_log, ("result.md", "output.log.md", "build.log", "changes.patch")))
