"""`agentq doctor` with real servers: what is well is said, what is not is named with its cure."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from agentq.cli.doctor import postgres as doctor_postgres
from agentq.cli.doctor.postgres import postgres_checks
from tests.interfaces.conftest import doctor_checks
from tests.servers.rabbitmq import RabbitServer, answers, free_ports
from tests.servers.seaweed import SeaweedServer

pytestmark = pytest.mark.long


class TestPostgres:
    def test_all_is_well(self, on_postgres: str) -> None:
        checks = doctor_checks()
        names = ("ledger", "durability", "server", "timeouts", "connections", "dead rows",
                 "transactions", "indexes", "clock", "artifacts", "doorbell")  # fmt: skip
        assert {name: checks[name]["status"] for name in names} == dict.fromkeys(names, "ok")
        assert "PostgreSQL" in checks["ledger"]["detail"]
        assert checks["timeouts"]["detail"] == "statement 30s, lock 25s"
        assert "primary" in checks["server"]["detail"]

    def test_an_index_that_was_dropped(self, on_postgres: str) -> None:
        with psycopg.connect(on_postgres) as connection:
            connection.execute("DROP INDEX agentq.tasks_due")
        found = doctor_checks(status=7)["indexes"]
        assert found["status"] == "failed" and "tasks_due" in found["detail"]

    def test_a_transaction_that_stays_open(
        self, on_postgres: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(doctor_postgres, "TRANSACTION_SECONDS_LONG", -1)
        with psycopg.connect(on_postgres, application_name="somebody's shell") as connection:
            connection.execute("SELECT 1")
            found = doctor_checks()["transactions"]
        assert found["status"] == "warning"
        assert "somebody's shell, idle in transaction, pid" in found["detail"]
        assert "pg_terminate_backend" in found["remedy"]

    def test_rows_that_are_not_cleaned_up(
        self, on_postgres: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(doctor_postgres, "DEAD_ROWS_MANY", 20)
        with psycopg.connect(on_postgres, autocommit=True) as connection:
            connection.execute("ALTER TABLE agentq.outbox SET (autovacuum_enabled = off)")
            connection.execute(
                "INSERT INTO agentq.outbox (key, version, number, lane, payload)"
                " SELECT n, 1, 0, 'x', '' FROM generate_series(1, 100) AS n"
            )
            connection.execute("DELETE FROM agentq.outbox")
            connection.execute("SELECT pg_stat_force_next_flush()")
        found = doctor_checks()["dead rows"]
        assert found["status"] == "warning" and "outbox 100 of 100" in found["detail"]

    @pytest.mark.parametrize(
        ("facts", "name", "status", "words"),
        [
            ({"fsync": "off"}, "durability", "failed", "fsync"),
            ({"role": "standby"}, "server", "failed", "standby"),
            ({"autovacuum": "off"}, "server", "warning", "autovacuum"),
            ({"connections": "95 of 100"}, "connections", "warning", "95 of 100"),
            ({"clock_skew_ms": "-60000"}, "clock", "warning", "60000 ms behind"),
            ({"statement_timeout": "0"}, "timeouts", "ok", "each transaction"),
        ],
    )
    def test_what_a_server_can_also_have(
        self, facts: dict[str, str], name: str, status: str, words: str
    ) -> None:
        """Servers that cannot be set up so in a test, or not quickly."""
        (found,) = [check for check in postgres_checks(facts) if check.name == name]
        assert found.status == status and words in found.detail

    def test_the_settings_of_hot_tables_are_in_force(self, on_postgres: str) -> None:
        with psycopg.connect(on_postgres) as connection:
            rows = connection.execute(
                "SELECT relname::text, reloptions FROM pg_class WHERE relname = ANY (%s)",
                [["tasks", "outbox", "head", "events"]],
            ).fetchall()
        options: dict[str, list[str]] = dict(rows)
        assert "autovacuum_vacuum_cost_delay=0" in options["outbox"]
        assert "autovacuum_vacuum_scale_factor=0.02" in options["tasks"], "as it was"
        assert "fillfactor=20" in options["head"]
        assert "autovacuum_vacuum_insert_scale_factor=0.05" in options["events"]


class TestObjectStore:
    def test_a_round_trip(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, shared_s3: SeaweedServer
    ) -> None:
        monkeypatch.setenv("AGENTQ_ARTIFACTS_ROOT", shared_s3.fresh_root())
        for name, value in shared_s3.options.items():
            monkeypatch.setenv(f"AGENTQ_ARTIFACTS_{name.upper()}", value)
        checks = doctor_checks()
        assert "round trip" in checks["artifacts"]["detail"]
        assert str(home) in checks["disk"]["detail"], "the disk is that of this machine"

    def test_one_that_is_not_there(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTQ_ARTIFACTS_ROOT", "s3://nowhere/x")
        monkeypatch.setenv("AGENTQ_ARTIFACTS_ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
        found = doctor_checks(status=7)["artifacts"]
        assert found["status"] == "failed" and "hunter2" not in str(found)


class TestBroker:
    def test_well_lacking_and_alarmed(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, rabbitmq_server: RabbitServer
    ) -> None:
        with rabbitmq_server.fresh_host() as url:
            monkeypatch.setenv("AGENTQ_BROKER", url)
            # Before anything is declared: it answers, and what it lacks is named.
            checks = doctor_checks()
            assert checks["broker"]["status"] == "ok"
            assert "RabbitMQ" in checks["broker"]["detail"]
            assert "guest:guest" not in str(checks)
            assert checks["queues"]["status"] == "warning"
            assert "agentq.ingest" in checks["queues"]["detail"]
            # Short of memory it takes no messages.
            alarm = "{{resource_limit, memory, node()}, []}"
            rabbitmq_server.call(f"rabbit_alarm:set_alarm({alarm})")
            try:
                found = doctor_checks(status=7)["broker"]
            finally:
                rabbitmq_server.call("rabbit_alarm:clear_alarm({resource_limit, memory, node()})")
            assert found["status"] == "failed" and "memory or disk" in found["detail"]

    @pytest.mark.long
    def test_how_long_it_lets_a_message_be_held(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, rabbitmq_server: RabbitServer
    ) -> None:
        monkeypatch.setenv("AGENTQ_BROKER", rabbitmq_server.url)
        monkeypatch.setenv("PATH", str(home))
        found = doctor_checks()["ack timeout"]
        assert found["status"] == "ok" and "no rabbitmqctl here" in found["detail"]
        assert "rabbitmqctl eval" in found["detail"]
        # The command line that may ask this broker: its own programs, with its cookie.
        for name, value in rabbitmq_server.operator().items():
            monkeypatch.setenv(name, value)
        found = doctor_checks()["ack timeout"]
        assert found["status"] == "ok" and "consumer_timeout is 30m" in found["detail"]
        before = "application:set_env(rabbit, consumer_timeout, 1800000)"
        try:
            rabbitmq_server.call("application:set_env(rabbit, consumer_timeout, 20000)")
            found = doctor_checks()["ack timeout"]
            assert found["status"] == "warning" and "consumer_timeout is 20s" in found["detail"]
            rabbitmq_server.call("application:unset_env(rabbit, consumer_timeout)")
            assert "no consumer_timeout" in doctor_checks()["ack timeout"]["detail"]
        finally:
            rabbitmq_server.call(before)
        # Two brokers on one machine: what one says is not taken for the other's.
        with RabbitServer() as other:
            monkeypatch.setenv("AGENTQ_BROKER", other.url)
            assert "another broker" in doctor_checks()["ack timeout"]["detail"]

    def test_asking_leaves_no_process_behind(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, rabbitmq_server: RabbitServer
    ) -> None:
        """Where no register of Erlang's names runs, `rabbitmqctl` would start one for good."""
        [port] = free_ports(1)
        for name, value in rabbitmq_server.operator().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ERL_EPMD_PORT", str(port))
        monkeypatch.setenv("AGENTQ_BROKER", rabbitmq_server.url)
        assert "rabbitmqctl gave no answer" in doctor_checks()["ack timeout"]["detail"]
        assert not answers(port), "an epmd was left running"

    def test_one_that_is_not_there(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AGENTQ_BROKER", "amqp://guest:hunter2@127.0.0.1:9/")
        found = doctor_checks(status=7)["broker"]
        assert found["status"] == "failed" and "hunter2" not in str(found)
