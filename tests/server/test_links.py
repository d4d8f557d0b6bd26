"""Large files straight to the object store and from it, by links that the server makes."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.artifacts import LINKED_BYTES_MIN, Source, Uploaded, UploadLink
from agentq.contracts.service import Service
from agentq.core import access
from agentq.core.access import SYSTEM, Principal
from agentq.core.errors import Conflict, Invalid, NotFound, Refused
from agentq.core.task import Spec
from agentq.remote import links
from agentq.remote.calls import Caller
from agentq.remote.service import RemoteService
from agentq.remote.transport import Transport, parse_address
from agentq.server.app import HttpApp
from agentq.settings import Settings, read_file
from agentq.wiring import WiredInstallation, open_installation
from tests.contracts.artifacts.backends import ObjectBackend
from tests.contracts.service.over_http import Tokens, serving
from tests.servers.seaweed import SeaweedServer

pytestmark = pytest.mark.long
WORKER = access.worker("host:1", "w")
LARGE = os.urandom(1 << 10) * (LINKED_BYTES_MIN >> 10) + b"and a little more"
DIGEST = hashlib.sha256(LARGE).hexdigest()


class Elsewhere:
    """A server whose artifacts are in a bucket, and a worker on another machine."""

    def __init__(self, installation: WiredInstallation, url: str, bucket: ObjectBackend) -> None:
        self.installation = installation
        self.local: Service = installation.service
        self.bucket = bucket
        self.tokens = Tokens()
        self.url = url
        self.callers: list[Caller] = []

    def service(self, who: Principal = WORKER) -> RemoteService:
        token = self.tokens.of(who)
        self.callers.append(Caller(Transport(self.url), lambda _: token))
        return RemoteService(self.callers[-1])

    def claimed(self) -> str:
        self.local.submit(SYSTEM, [Spec("task-1", "w", instructions="x")])
        return self.local.claim(WORKER, "w", 1, "host:1")[0].id


@contextmanager
def elsewhere(folder: Path, server: SeaweedServer, *, has_links: bool) -> Iterator[Elsewhere]:
    bucket = ObjectBackend(server.fresh_root(), server.options)
    settings = Settings(
        f"sqlite:///{folder / 'ledger.db'}", bucket.url, "the test",
        artifacts_options=bucket.options, local=str(folder), artifact_links=has_links,
    )  # fmt: skip
    installation = open_installation(settings, create=True)
    tokens = Tokens()
    app = HttpApp(installation.service, installation.doorbell, tokens.principal)
    with serving(app) as (url, _):
        found = Elsewhere(installation, url, bucket)
        found.tokens = tokens
        yield found
        for caller in found.callers:
            caller.close()
    installation.close()


@pytest.fixture
def place(tmp_path: Path, shared_s3: SeaweedServer) -> Iterator[Elsewhere]:
    with elsewhere(tmp_path, shared_s3, has_links=True) as found:
        yield found


@pytest.fixture
def by_link(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went by a link: `up` and `down`."""
    went: list[str] = []
    send, fetch = links.sent, links.fetched

    def sent(*arguments: Any) -> Any:
        came = send(*arguments)
        went.extend(["up"] if came else [])
        return came

    def fetched(*arguments: Any) -> Any:
        came = fetch(*arguments)
        went.extend(["down"] if came else [])
        return came

    monkeypatch.setattr(links, "sent", sent)
    monkeypatch.setattr(links, "fetched", fetched)
    return went


class TestThereAndBack:
    def test_large_ones_by_links_and_small_ones_with_the_request(
        self, place: Elsewhere, by_link: list[str]
    ) -> None:
        task_id, service = place.claimed(), place.service()
        files: list[tuple[str, Source]] = [
            ("small.txt", b"small"),
            ("large.bin", io.BytesIO(LARGE)),
            ("last.md", b"# end"),
        ]
        stored = service.put_artifacts(WORKER, task_id, 1, files)
        assert [(each.name, each.size) for each in stored] == [
            ("small.txt", 5), ("large.bin", len(LARGE)), ("last.md", 5),
        ]  # fmt: skip
        assert stored[1].sha256 == DIGEST
        _, info, file = service.open_artifact(WORKER, task_id, "large.bin")
        with file:
            assert (file.read(), info.sha256) == (LARGE, DIGEST)
        with service.open_artifact(WORKER, task_id, "small.txt")[2] as file:
            assert file.read() == b"small"
        assert by_link == ["up", "down"]
        assert not [name for name in place.bucket.names() if ".tmp-" in name]
        assert [found for _, found in place.local.verify(SYSTEM) if found] == []

    def test_the_same_again_and_another_under_its_name(self, place: Elsewhere) -> None:
        task_id, service = place.claimed(), place.service()
        for _ in range(2):
            service.put_artifacts(WORKER, task_id, 1, [("large.bin", LARGE)])
        with pytest.raises(Conflict, match="never overwritten"):
            service.put_artifacts(WORKER, task_id, 1, [("large.bin", LARGE[::-1])])
        with service.open_artifact(WORKER, task_id, "large.bin")[2] as file:
            assert file.read() == LARGE

    def test_a_store_out_of_reach_costs_nothing_but_the_way(
        self, place: Elsewhere, by_link: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task_id, service = place.claimed(), place.service()

        def nowhere(_: str) -> tuple[Transport, str]:
            return Transport("http://127.0.0.1:9"), "/"

        monkeypatch.setattr(links, "_opened", nowhere)
        service.put_artifacts(WORKER, task_id, 1, [("large.bin", LARGE)])
        with service.open_artifact(WORKER, task_id, "large.bin")[2] as file:
            assert file.read() == LARGE
        assert by_link == []

    def test_nothing_by_links_unless_settings_say_so(
        self, tmp_path: Path, shared_s3: SeaweedServer, by_link: list[str]
    ) -> None:
        with elsewhere(tmp_path, shared_s3, has_links=False) as place:
            task_id, service = place.claimed(), place.service()
            assert service.upload_links(WORKER, task_id, 1) == []
            service.put_artifacts(WORKER, task_id, 1, [("large.bin", LARGE)])
            with service.open_artifact(WORKER, task_id, "large.bin")[2] as file:
                assert file.read() == LARGE
        assert by_link == []


class TestNobodyIsBelieved:
    """What was sent by a link counts once the server has looked."""

    def send(self, link: UploadLink, content: bytes) -> None:
        transport, target = links._opened(link.url)
        reply = transport.send("PUT", target, {}, content)
        assert (reply.status, reply.read()) == (200, b"")
        transport.close()

    def test_another_content_size_or_nothing_at_all(self, place: Elsewhere) -> None:
        task_id, service = place.claimed(), place.service()
        other = LARGE[::-1]
        for content, said in [
            (other, Uploaded("", len(LARGE), DIGEST)),
            (LARGE, Uploaded("", len(LARGE) + 1, DIGEST)),
            (None, Uploaded("", len(LARGE), DIGEST)),
        ]:
            link = service.upload_links(WORKER, task_id, 1)[0]
            if content is not None:
                self.send(link, content)
            uploaded = Uploaded(link.temporary, said.size, said.sha256)
            with pytest.raises(Conflict, match="did not come as it was promised"):
                service.put_artifacts(WORKER, task_id, 1, [("large.bin", uploaded)])
        assert place.local.artifacts(SYSTEM, task_id) == []
        assert not [name for name in place.bucket.names() if "large.bin" in name]

    @pytest.mark.parametrize("name", ["../1/x", ".tmp-", "large.bin", ".tmp-" + "g" * 24, "a/b"])
    def test_no_other_object_by_its_name(self, place: Elsewhere, name: str) -> None:
        task_id, service = place.claimed(), place.service()
        with pytest.raises(Invalid, match="no name that a link was given for"):
            service.put_artifacts(WORKER, task_id, 1, [("x", Uploaded(name, 1, DIGEST))])

    def test_one_link_is_for_one_attempt(self, place: Elsewhere) -> None:
        task_id, service = place.claimed(), place.service()
        link = service.upload_links(WORKER, task_id, 1)[0]
        self.send(link, LARGE)
        place.local.submit(SYSTEM, [Spec("task-2", "w", instructions="x")])
        other = place.local.claim(WORKER, "w", 1, "host:1")[0].id
        uploaded = Uploaded(link.temporary, len(LARGE), DIGEST)
        with pytest.raises(Conflict):
            service.put_artifacts(WORKER, other, 1, [("large.bin", uploaded)])

    def test_an_agent_gets_no_link(self, place: Elsewhere) -> None:
        task_id = place.claimed()
        place.service().put_artifacts(WORKER, task_id, 1, [("large.bin", LARGE)])
        agent = access.attempt(task_id, 1, "w")
        assert place.local.upload_links(agent, task_id, 1) == []
        with pytest.raises(Refused):
            place.local.put_artifacts(agent, task_id, 1, [("x", Uploaded("", 1, DIGEST))])
        assert place.local.artifact_link(agent, task_id, "large.bin") is None
        assert place.local.artifact_link(SYSTEM, task_id, "large.bin") is not None
        with pytest.raises(NotFound):
            place.local.artifact_link(SYSTEM, task_id, "other.bin")


class TestSettings:
    def test_only_with_an_object_store(self, tmp_path: Path) -> None:
        file = tmp_path / "agentq.toml"
        file.write_text('[artifacts]\nroot = "s3://bucket/agentq"\nlinks = true\n')
        assert read_file(file).artifact_links
        file.write_text('[artifacts]\nroot = "files"\nlinks = true\n')
        with pytest.raises(Invalid, match="needs artifacts in an object store"):
            read_file(file)
        file.write_text('[artifacts]\nlinks = "yes"\n')
        with pytest.raises(Invalid, match="true or false"):
            read_file(file)

    def test_no_link_that_is_less_secret_than_the_server(self) -> None:
        safe, plain = parse_address("https://agentq.example"), parse_address("http://127.0.0.1:1")
        assert links.may_follow("https://bucket.example/x", safe)
        assert not links.may_follow("http://bucket.example/x", safe)
        assert links.may_follow("http://127.0.0.1:9000/x", plain)
        assert not links.may_follow("file:///etc/passwd", plain)
