"""The agent CLIs of `make test-agents` are pinned exactly, by hash, and to no registry."""

from __future__ import annotations

import json
import re

from tests.architecture.files import ROOT

FOLDER = ROOT / "tests" / "real_agents"


def test_every_agent_cli_is_pinned_to_one_version() -> None:
    pins = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    assert [pin for pin in pins.values() if not re.fullmatch(r"\d+\.\d+\.\d+", pin)] == []


def test_the_lock_file_has_hashes_and_names_no_registry() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text())
    packages = {name: fields for name, fields in lock["packages"].items() if name}
    assert packages, "the lock file pins nothing"
    assert [name for name, fields in packages.items() if "resolved" in fields] == []
    # A package for another platform may be unknown to a registry, and is then not installed either.
    known = {name: fields for name, fields in packages.items() if "version" in fields}
    assert [name for name, fields in known.items() if "integrity" not in fields] == []
