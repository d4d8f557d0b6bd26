"""`agentq doctor` names what keeps a ledger, or a worker, from doing its part."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentq.stores.transfer.base import all_tables
from tests.interfaces.conftest import doctor_checks, run_here
from tests.servers.machine import NOBODY, as_nobody


def alter(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True, options="-c search_path=agentq") as connection:
        connection.execute(sql.encode())


def nobody_told(status: int = 0) -> dict[str, Any]:
    with as_nobody():
        return doctor_checks(status)


def test_a_clock_that_differs_from_that_of_the_others(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor_checks()["clock"]["status"] == "ok"
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 7200 * 10**9)
    found = doctor_checks()["clock"]
    assert found["status"] == "warning" and "7200 s ahead" in found["detail"]


class TestWritable:
    def test_a_ledger_that_was_moved(self, home: Path) -> None:
        assert doctor_checks()["writable"]["status"] == "ok"
        elsewhere = home / "elsewhere" / "ledger.db"
        elsewhere.parent.mkdir()
        run_here("move", "--to", f"sqlite:///{elsewhere}").ok()
        # Given the old one, as a process sees it whose settings were not changed,
        run = run_here("--url", f"sqlite:///{home}/.agentq/ledger.db", "--json", "doctor")
        # then it is said that it takes no writes, and where to.
        (found,) = [each for each in run.json()["checks"] if each["name"] == "writable"]
        assert run.status == 7 and found["status"] == "failed"
        assert str(elsewhere) in found["detail"] and "--undo" in found["remedy"]
        assert doctor_checks()["writable"]["status"] == "ok", "the new one"

    def test_a_database_that_is_set_read_only(self, on_postgres: str) -> None:
        name = on_postgres.split("@/")[1].split("?", maxsplit=1)[0]
        alter(on_postgres, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        found = doctor_checks(status=7)["writable"]
        assert found["status"] == "failed"
        assert "default_transaction_read_only is on (set by: database" in found["detail"]
        assert "RESET default_transaction_read_only" in found["remedy"]

    def test_a_user_who_may_only_look(
        self, on_postgres: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alter(on_postgres, "CREATE TABLE theirs (n integer)")  # is nobody's business here
        role = f"looks_{os.getpid()}"
        alter(on_postgres, f"CREATE ROLE {role} LOGIN")
        owned = ", ".join(all_tables("postgres"))
        try:
            alter(on_postgres, f"GRANT USAGE ON SCHEMA agentq TO {role}")
            alter(on_postgres, f"GRANT SELECT ON {owned}, schema_migrations TO {role}")
            monkeypatch.setenv("AGENTQ_URL", on_postgres.replace("postgres@", f"{role}@"))
            found = doctor_checks(status=7)["writable"]
            assert found["status"] == "failed" and "GRANT SELECT, INSERT" in found["remedy"]
            for lacking in ("INSERT ON tasks", "UPDATE ON trees", "DELETE ON outbox",
                            "USAGE ON task_keys", "UPDATE ON terms"):  # fmt: skip
                assert lacking in found["detail"]
            assert "theirs" not in found["detail"] and "SELECT" not in found["detail"]
            # One that is missing is enough,
            alter(on_postgres, f"GRANT INSERT, UPDATE, DELETE ON {owned} TO {role}")
            found = doctor_checks(status=7)["writable"]
            assert found["detail"] == "this user lacks rights: USAGE ON task_keys"
            run_here("submit", "--to", "w", "--instructions", "x").refused(7, "task_keys")
            # and what is said to be needed is enough.
            alter(on_postgres, f"GRANT USAGE ON SEQUENCE task_keys TO {role}")
            assert doctor_checks()["writable"]["status"] == "ok"
            run_here("submit", "--to", "w", "--instructions", "x").ok()
            run_here("claim", "--as", "w").ok()
        finally:
            alter(on_postgres, f"DROP OWNED BY {role}")
            alter(on_postgres, f"DROP ROLE {role}")


class TestIndexes:
    def test_keys_that_were_dropped(self, on_postgres: str) -> None:
        for drop in (
            "ALTER TABLE dedup DROP CONSTRAINT dedup_pkey",
            "ALTER TABLE artifacts DROP CONSTRAINT artifacts_pkey",
            "ALTER TABLE specs DROP CONSTRAINT specs_id_key",
            "DROP INDEX tasks_due",
        ):
            alter(on_postgres, drop)
        found = doctor_checks(status=7)["indexes"]
        assert found["status"] == "failed"
        assert found["detail"].endswith("artifacts_pkey, dedup_pkey, specs_id_key, tasks_due")
        # What is said to be done about it is enough.
        for statement in found["remedy"].split("; "):
            alter(on_postgres, statement)
        assert doctor_checks()["indexes"]["status"] == "ok"


class TestSessionsOfOthers:
    def test_a_plain_user_is_told_what_it_cannot_see(
        self, on_postgres: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with psycopg.connect(on_postgres) as other:
            role = f"plain_{os.getpid()}"
            alter(on_postgres, f"CREATE ROLE {role} LOGIN")
            try:
                alter(on_postgres, f"GRANT USAGE ON SCHEMA agentq TO {role}")
                alter(on_postgres, f"GRANT ALL ON ALL TABLES IN SCHEMA agentq TO {role}")
                alter(on_postgres, f"GRANT USAGE ON SEQUENCE task_keys TO {role}")
                other.execute("SELECT 1")  # and stays in this transaction
                monkeypatch.setenv("AGENTQ_URL", on_postgres.replace("postgres@", f"{role}@"))
                found = doctor_checks()["transactions"]
                assert found["status"] == "warning" and "GRANT pg_read_all_stats" in found["remedy"]
                assert "1 session of other users cannot be seen" in found["detail"]
                alter(on_postgres, f"GRANT pg_read_all_stats TO {role}")
                found = doctor_checks()["transactions"]
                assert found["status"] == "ok" and "the oldest is open for" in found["detail"]
            finally:
                alter(on_postgres, f"DROP OWNED BY {role}")
                alter(on_postgres, f"DROP ROLE {role}")


class TestWorkspaces:
    def test_they_can_be_made_and_written(self, home: Path) -> None:
        assert doctor_checks()["workspaces"]["detail"].endswith("can be made")
        (home / ".agentq" / "workspaces").mkdir()
        assert doctor_checks()["workspaces"]["detail"].endswith("can be written")
        assert list((home / ".agentq" / "workspaces").iterdir()) == []

    def test_a_folder_of_another_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            base = Path(folder)
            monkeypatch.chdir(base)
            run_here("init").ok()
            assert doctor_checks()["workspaces"]["status"] == "ok"
            for path in (base, *base.rglob("*")):
                os.chown(path, NOBODY, -1)
            # Given workspaces that root has made, and a worker that is somebody else:
            (base / ".agentq" / "workspaces").mkdir(mode=0o755)
            # One who runs none is told, and no more: submitting needs no workspace.
            found = nobody_told()
            assert found["workspaces"]["status"] == "warning"
            with (base / "agentq.toml").open("a") as settings:
                settings.write("[roles.limited]\nmax_running = 2\n")
            run_here("init").ok()
            assert nobody_told()["workspaces"]["status"] == "warning"
            # With roles that work here it cannot go on like this.
            with (base / "agentq.toml").open("a") as settings:
                settings.write('command = ["true"]\n')
            found = nobody_told(status=7)
            assert found["artifacts"]["status"] == found["writable"]["status"] == "ok"
            assert found["workspaces"]["status"] == "failed"
            assert f"belongs to user 0, this is user {NOBODY}" in found["workspaces"]["detail"]
            assert "chown" in found["workspaces"]["remedy"]
            monkeypatch.chdir("/")


def test_a_folder_that_may_not_be_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a ledger, and nobody is told to make another one."""
    monkeypatch.delenv("AGENTQ_URL", raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        base = Path(folder)
        monkeypatch.chdir(base)
        base.chmod(0o755)
        run_here("init").ok()
        doctor_checks()
        (base / ".agentq").chmod(0o700)
        found = nobody_told(status=7)["ledger"]
        assert "permission denied" in found["detail"] and f"User {NOBODY}" in found["detail"]
        assert "init" not in found["remedy"]
        with as_nobody():
            run_here("list").refused(7, "permission denied", ".agentq/ledger.db")
        base.chmod(0o700)
        with as_nobody():
            run_here("list").refused(7, "permission denied", f"the folder {base}")
            assert "permission denied" in doctor_checks(status=7)["settings"]["detail"]
        monkeypatch.chdir("/")


def test_settings_that_are_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Docker makes of a file that it shall mount and that is not there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTQ_URL", raising=False)
    (tmp_path / "agentq.toml").mkdir()
    run_here("list").refused(2, "agentq.toml is a folder")
    assert "is a folder" in doctor_checks(status=7)["settings"]["detail"]
