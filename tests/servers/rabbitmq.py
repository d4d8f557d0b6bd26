"""A private, real RabbitMQ for tests, from the distribution's package.

Its programs are called directly (the wrapper in the path switches users). Every port is free and on
the loopback; node, cookie and data live in a temporary folder, so nothing of it can collide with
another broker or another test run. Its settings are Erlang terms: read in no time, where the usual
file takes seconds to be parsed. Tests get a virtual host each, which takes a tenth of a second;
starting the broker takes some seconds, so there is one for the whole run.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.eventually import eventually
from tests.servers.guard import Guard
from tests.servers.process import ServerProcess
from tests.servers.run import TestRun, memory_folder

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
#: Only a failure takes this long: a machine may have other work.
START_SECONDS_MAX = 180

CONFIGURATION = """[
 {{rabbit, [
   {{tcp_listeners, [{{"127.0.0.1", {port}}}]}},
   {{vm_memory_high_watermark, {{absolute, 1073741824}}}},
   {{disk_free_limit, 50000000}},
   {{collect_statistics_interval, 60000}}
 ]}}
].
"""

CLEAN_UP = """
for name in broker epmd; do
  [ -e "$1/$name.pid" ] && read -r pid < "$1/$name.pid" && kill -9 "$pid"
done
tries=0
while ! rm -rf "$1" && [ $tries -lt 40 ]; do sleep 0.05; tries=$((tries + 1)); done
"""


class RabbitUnavailable(Exception):
    """This machine cannot run the test broker; the message says why."""


class RabbitServer:
    """One private broker: started on construction, usable until `stop` or the end of the run."""

    def __init__(self, run: TestRun | None = None) -> None:
        missing = [
            str(each)
            for each in (PROGRAMS / "rabbitmq-server", *map(_found, ("epmd", "erl_call")))
            if not each.exists()
        ]
        if missing:
            raise RabbitUnavailable(f"{', '.join(missing)}: not there; apt install rabbitmq-server")
        self.folder = memory_folder("mq", run)
        self.port, self._epmd_port, self._node_port = free_ports(3)
        self._cookie = uuid.uuid4().hex.upper()
        #: Virtual hosts that exist; a wiped broker gets them back, empty.
        self._hosts: list[str] = []
        self._process = ServerProcess(self.folder / "broker.pid")
        self._epmd = ServerProcess(self.folder / "epmd.pid")
        self._guard: Guard | None = Guard(CLEAN_UP, self.folder, run)
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """The address of the broker's own virtual host, which all tests share."""
        return self.url_of("/")

    def url_of(self, host: str, user: str = "guest", password: str = "guest") -> str:
        """The address of one virtual host on this broker."""
        return f"amqp://{user}:{password}@127.0.0.1:{self.port}/{host.replace('/', '%2F')}"

    @property
    def log(self) -> str:
        """What the broker has said so far."""
        path = self.folder / "said"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def running(self) -> bool:
        """Whether the broker's process is there."""
        return self._process.running

    @property
    def pid(self) -> int:
        """The broker's process, for tests that stop or kill it by hand."""
        return self._process.pid

    def start(self) -> None:
        """Start again after `halt`; returns when connections are accepted."""
        self._start_epmd()
        program = [str(PROGRAMS / "rabbitmq-server")]
        self._process.start(program, self._environment(), self.folder / "said")

        def started() -> bool:
            if not self.running:
                raise RabbitUnavailable(f"RabbitMQ did not start:\n{self.log[-2000:]}")
            return answers(self.port)

        eventually(started, START_SECONDS_MAX, f"an answer of RabbitMQ at {self.port}")

    def halt(self) -> None:
        """Kill the broker as a power cut would, and keep its disk."""
        self._process.kill()

    def restart(self) -> None:
        """Every connection breaks, the address stays, what is durable is there again."""
        self.halt()
        self.start()

    def wipe(self) -> None:
        """Kill it, lose its disk, start it: the virtual hosts are there, and nothing in them."""
        if self.running:
            self.halt()
        shutil.rmtree(self.folder / "data")
        self.start()
        self._make_hosts(self._hosts)

    def stop(self) -> None:
        """End the broker and remove its folder; stopping twice is safe."""
        self._process.kill()
        self._epmd.kill()
        if self._guard is not None:
            self._guard.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __getstate__(self) -> dict[str, object]:
        """The broker as another process of the test run knows it."""
        return {**self.__dict__, "_guard": None, "_hosts": []}

    @contextmanager
    def fresh_host(self) -> Iterator[str]:
        """The address of an empty virtual host. At the end all its connections are closed."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        self._make_hosts([name])
        self._hosts.append(name)
        try:
            yield self.url_of(name)
        finally:
            self._hosts.remove(name)
            if not self.running:  # a test failed between halting and starting
                self.start()
            self.call(f'rabbit_vhost:delete(<<"{name}">>, <<"tests">>)')

    def call(self, *expressions: str) -> str:
        """Let the broker evaluate Erlang: what an operator does with `rabbitmqctl`, in no time."""
        # A name of its own (what -r draws is the same for a second): two calls of one name look
        # like one node that fell ill, and the later is not let in, or the earlier thrown out.
        name = f"caller{uuid.uuid4().hex}"
        caller = [str(_found("erl_call")), "-h", name, "-c", self._cookie, "-n", self._node]
        finished = subprocess.run(
            [*caller, "-timeout", "30", "-e"],
            input=(", ".join(expressions) + ".\n").encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(),
            timeout=START_SECONDS_MAX,
            check=False,
        )
        said = finished.stdout.decode(errors="replace")
        if finished.returncode or "{error" in said:
            raise RabbitUnavailable(f"{expressions} ended with {finished.returncode}: {said}")
        return said.removeprefix("{ok, ").removesuffix("}")

    def operator(self) -> dict[str, str]:
        """The environment in which `rabbitmqctl` speaks to this broker."""
        return {**self._environment(), "PATH": f"{PROGRAMS}:{os.defpath}:/usr/sbin:/sbin"}

    def listen_by_tls(self, folder: Path) -> int:
        """Answer by TLS too, under a certificate for localhost made in this folder; which port."""
        words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        subprocess.run(
            [
                "openssl",
                *words.split(),
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=DNS:localhost",
                "-keyout",
                "key.pem",
                "-out",
                "cert.pem",
            ],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        [port] = free_ports(1)
        self.call(
            f'rabbit_networking:start_ssl_listener({{"127.0.0.1", {port}}},'
            f' [{{certfile, "{folder}/cert.pem"}}, {{keyfile, "{folder}/key.pem"}}], 2)'
        )
        return port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _node(self) -> str:
        return f"agentq-{self.port}@localhost"

    def _prepare(self) -> None:
        (self.folder / "home").mkdir()
        cookie = self.folder / "home" / ".erlang.cookie"
        cookie.write_text(self._cookie)
        cookie.chmod(0o400)
        (self.folder / "advanced.config").write_text(CONFIGURATION.format(port=self.port))
        (self.folder / "rabbitmq.conf").write_text("")
        (self.folder / "enabled_plugins").write_text("[].")

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{os.defpath}:/usr/sbin:/sbin",
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.folder / "home"),
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_PID_FILE": str(self.folder / "erlang.pid"),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1}"
                " +sbwt none +sbwtdcpu none +sbwtdio none"
            ),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # The script becomes the broker instead of standing in front of it.
            "RUNNING_UNDER_SYSTEMD": "yes",
        }

    def _start_epmd(self) -> None:
        """Erlang's register of names. Its own would outlive the broker; this one is our child."""
        if not self._epmd.running:
            words = ["-port", str(self._epmd_port), "-address", "127.0.0.1"]
            environment = dict(os.environ)
            self._epmd.start([str(_found("epmd")), *words], environment, self.folder / "epmd")
            eventually(lambda: answers(self._epmd_port), START_SECONDS_MAX, "an answer of epmd")

    def _make_hosts(self, names: list[str]) -> None:
        for name in names:
            self.call(
                f'rabbit_vhost:add(<<"{name}">>, <<"tests">>)',
                f'rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"{name}">>,'
                ' <<".*">>, <<".*">>, <<".*">>, <<"tests">>)',
            )


def _found(program: str) -> Path:
    return Path(shutil.which(program) or program)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
