"""Settings of a machine that reaches its ledger through a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.core.errors import Invalid
from agentq.settings import load_settings

TOML = '[ledger]\nurl = "{}"\n\n[roles.w]\ncommand = ["true"]\nslots = 3\n'


@pytest.mark.parametrize(
    "url", ["https://queue.example", "http://127.0.0.1:8765/agentq", "http+unix:/run/agentq.sock"]
)
def test_a_worker_elsewhere_has_roles_a_token_and_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    (tmp_path / "agentq.toml").write_text(TOML.format(url))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTQ_TOKEN", "agq_of_the_worker")
    # What another installation of this machine uses means nothing to the server
    monkeypatch.setenv("AGENTQ_BROKER", "amqp://guest@127.0.0.1/")
    found = load_settings()
    assert (found.url, found.token, found.broker) == (url, "agq_of_the_worker", "")
    assert found.workers["w"].slots == 3
    assert found.workspaces_root == str(tmp_path / ".agentq/workspaces")
    assert "agq_of_the_worker" not in repr(found)


def test_the_token_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agentq.toml").write_text(TOML.format("https://queue.example"))
    (tmp_path / "token").write_text("agq_of_the_worker\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTQ_TOKEN", f"file:{tmp_path}/token")
    assert load_settings().token == "agq_of_the_worker"


@pytest.mark.parametrize(
    "table",
    ['[artifacts]\nroot = "files"', '[broker]\nurl = "amqp://x/"', '[retention]\nkeep = "1d"',
     "[access]\nfour_eyes = true"],
)  # fmt: skip
def test_what_the_server_decides_is_not_set_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    (tmp_path / "agentq.toml").write_text(f"{TOML.format('https://queue.example')}\n{table}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Invalid, match="has no effect") as refused:
        load_settings()
    assert table.split("\n", 1)[0] in str(refused.value)
