"""nginx with the settings of deploy/proxy/nginx.conf, in front of a server of a test."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.eventually import eventually
from tests.servers.missing import go_without

EXAMPLE = Path(__file__).parents[2] / "deploy/proxy/nginx.conf"
#: What stands around the example in the distribution's own nginx.conf, as far as it matters here.
AROUND = """\
daemon off;
master_process on;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    client_body_temp_path {folder}/uploads;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/agentq.conf;
}}
"""


@dataclass(frozen=True)
class Proxy:
    """A proxy at https://localhost:port; `authority` is the certificate that it shows."""

    port: int
    folder: Path
    authority: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "access.log").read_text()

    def buffered(self) -> list[Path]:
        """Files in which it has put bodies aside."""
        folders = [self.folder / "uploads", self.folder / "answers"]
        return [each for folder in folders for each in folder.rglob("*") if each.is_file()]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def example_for(folder: Path, port: int, upstream: int, certificate: Path, key: Path) -> str:
    """The example, with the places of a test; each must occur in it."""
    text = EXAMPLE.read_text()
    for there, here in {
        "server 127.0.0.1:8765;": f"server 127.0.0.1:{upstream};",
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/ssl/queue.example.org.pem": str(certificate),
        "/etc/ssl/private/queue.example.org.key": str(key),
        "/var/log/nginx/agentq.log": str(folder / "access.log"),
        "server_name queue.example.org;": "server_name localhost;",
    }.items():
        assert there in text, f"{EXAMPLE} has no {there!r} any more"
        text = text.replace(there, here)
    return text


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for this name, and its key."""
    program = shutil.which("openssl")
    if program is None:
        go_without("openssl", "apt install openssl")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@contextmanager
def nginx_before(upstream: int, folder: Path) -> Iterator[Proxy]:
    """nginx in front of this port of loopback."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        go_without("nginx", "as root: apt install nginx-light")
    folder.mkdir()
    certificate, key = make_certificate(folder, "localhost")
    port = _free_port()
    (folder / "agentq.conf").write_text(example_for(folder, port, upstream, certificate, key))
    user = "user root;\n" if os.geteuid() == 0 else ""  # whoever may read the folder of the test
    (folder / "nginx.conf").write_text(user + AROUND.format(folder=folder))
    with (folder / "stderr").open("wb") as said:
        process = subprocess.Popen(
            [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", "nginx.conf"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    try:
        eventually(lambda: _answers(process, port, folder), what="nginx")
        yield Proxy(port, folder, certificate)
    finally:
        process.terminate()
        process.wait(20)


def _answers(process: subprocess.Popen[bytes], port: int, folder: Path) -> bool:
    assert process.poll() is None, (folder / "stderr").read_text()
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as plain:
        trusting = ssl._create_unverified_context()  # noqa: S323 - whether it answers, not who
        trusting.wrap_socket(plain).close()
        return True
    return False
