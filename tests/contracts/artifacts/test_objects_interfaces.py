"""The same commands, with artifacts in an object store by settings alone."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agentq.cli.main import cli
from tests.contracts.artifacts.backends import ObjectBackend

Run = Callable[..., Any]


@pytest.fixture
def run(objects: ObjectBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder whose artifacts are in the bucket; returns its JSON."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agentq.toml").write_text(
        f'[artifacts]\nroot = "{objects.url}"\n'
        f'endpoint = "{objects.options["endpoint"]}"\nregion = "{objects.options["region"]}"\n'
    )

    def run(*words: str, status: int = 0) -> Any:
        result = CliRunner().invoke(cli, [*words, "--json"])
        assert result.exit_code == status, result.output
        return json.loads(result.stdout)

    run("init")
    return run


def test_a_task_from_submit_to_prune(run: Run, objects: ObjectBackend, tmp_path: Path) -> None:
    task_file = tmp_path / "task-1.md"
    task_file.write_text("---\nto: writer\n---\n# Write\n\nA long story.\n")
    run("submit", "--file", str(task_file))
    assert "tasks/task-1.md" in objects.names()
    run("claim", "--as", "writer")
    (tmp_path / "report.md").write_text("# Report\n")
    run("artifacts", "put", "task-1", str(tmp_path / "report.md"), "--epoch", "1")
    run("complete", "task-1", "--epoch", "1", "--result-file", str(tmp_path / "report.md"))
    assert {"artifacts/task-1/1/report.md", "results/task-1.md"} <= objects.names()
    assert not list(tmp_path.rglob("artifacts"))

    listed = run("artifacts", "ls", "task-1")["artifacts"]
    assert listed[0]["ref"].startswith(objects.url)
    linked = run("artifacts", "link", "task-1", "report.md", "--for", "10m")
    with urllib.request.urlopen(linked["url"], timeout=30) as answer:  # noqa: S310 (our server)
        assert hashlib.sha256(answer.read()).hexdigest() == linked["sha256"]
    assert linked["expires_at"] > linked["at"]

    run("artifacts", "get", "task-1", "report.md", "-o", str(tmp_path / "copy.md"))
    assert (tmp_path / "copy.md").read_text() == "# Report\n"
    assert run("verify")["problems"] == 0
    run("prune", "--older-than", "0s", "--yes")
    assert objects.names() == set()


def test_credentials_by_reference(
    run: Run, objects: ObjectBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given credentials that stand in a variable of another name, and in a file,
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "wrong")
    file = tmp_path / "agentq.toml"
    plain = file.read_text()
    monkeypatch.setenv("STORE_KEY", key)
    (tmp_path / "store-secret").write_text(f"{secret}\n")
    (tmp_path / "store-secret").chmod(0o600)
    # when the settings name them, then the bucket is reached; and not without them.
    run("submit", "--to", "w", "--id", "task-1", "--instructions", "x" * 70_000, status=7)
    file.write_text(
        f'{plain}access_key_id = "env:STORE_KEY"\nsecret_access_key = "file:store-secret"\n'
    )
    run("submit", "--to", "w", "--id", "task-1", "--instructions", "x" * 70_000)
    assert "tasks/task-1.md" in objects.names()
    shown = (
        json.dumps(run("doctor")) + json.dumps(run("init")) + json.dumps(run("status", "task-1"))
    )
    assert secret not in shown


def test_links_that_cannot_be(run: Run, tmp_path: Path) -> None:
    run("submit", "--to", "writer", "--id", "task-1", "--instructions", "Write.")
    assert run("artifacts", "link", "task-1", "a.md", status=3)["error"]["code"] == "not_found"
    (tmp_path / "a.md").write_text("x")
    run("claim", "--as", "writer")
    run("artifacts", "put", "task-1", str(tmp_path / "a.md"), "--epoch", "1")
    refused = run("artifacts", "link", "task-1", "a.md", "--for", "8d", status=2)
    assert "1 second to 7 days" in refused["error"]["cause"]
    run("artifacts", "link", "task-1", "a.md", "--epoch", "2", status=3)
