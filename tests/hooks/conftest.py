"""A server with hooks, and ways to send to it."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from agentq.contracts.hook_values import HookDelivery
from agentq.core.access import SYSTEM
from agentq.server.app import HttpApp
from agentq.settings import Settings
from agentq.wiring import WiredInstallation, open_installation
from tests.contracts.service.over_http import Tokens, serving
from tests.hooks.files import ISSUES, SECRET, write_hook


@dataclass
class HookServer:
    """A server over a ledger of its own, with a folder of hooks."""

    url: str
    installation: WiredInstallation
    folder: Path
    app: HttpApp

    def post(
        self, path: str, body: bytes, headers: dict[str, str], *, method: str = "POST"
    ) -> tuple[int, Any, dict[str, str]]:
        """The status, the JSON and the headers of the answer."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, json.loads(answer.read()), found
        finally:
            connection.close()

    def send(
        self, body: bytes, delivery_id: str, hook: str = "issues", secret: str = SECRET,
        **headers: str,
    ) -> tuple[int, Any, dict[str, str]]:  # fmt: skip
        """Post as GitHub does."""
        return self.post(f"/hooks/{hook}", body, signed(body, delivery_id, secret, **headers))

    def deliveries(self, hook: str = "") -> list[HookDelivery]:
        service = self.installation.service
        return service.hook_deliveries(SYSTEM, hook, limit=1000, bodies=True)


def signed(body: bytes, delivery_id: str, secret: str = SECRET, **headers: str) -> dict[str, str]:
    """The headers of a delivery of GitHub."""
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "X-Hub-Signature-256": f"sha256={signature}",
        "X-GitHub-Delivery": delivery_id,
        "X-GitHub-Event": "issues",
        "Content-Type": "application/json",
        **headers,
    }


@pytest.fixture
def hook_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    settings = Settings(f"sqlite:///{tmp_path / 'ledger.db'}", str(tmp_path / "files"), "the test")
    installation = open_installation(settings, create=True)
    app = HttpApp(
        installation.service, installation.doorbell, Tokens().principal, hooks=tmp_path / "hooks"
    )
    with serving(app) as (url, _):
        yield HookServer(url, installation, tmp_path, app)
    installation.close()
