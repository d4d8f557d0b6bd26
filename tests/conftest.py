"""What every test may rely on: real servers, one printed seed, and no settings from the outside."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from agentq.client.queue import Queue
from agentq.remote.opening import is_remote, open_any
from agentq.settings import Settings, addresses, load_settings
from tests.servers.missing import IN_CI
from tests.ways import BESIDE, out_of_turn, ways_of

pytest_plugins = ["tests.budget", "tests.servers.fixtures"]

#: One number decides all chance of a run. It is printed, and repeats the run when given again.
#: In CI it is always the same, so that a change is judged by what it changed; every other run, and
#: `make sim`, looks further.
_CHANCE = 20_261_115 if IN_CI else random.SystemRandom().randrange(2**32)
SEED = int(os.environ.get("AGENTQ_SEED") or os.environ.get("SEED_OF_THE_RUN") or _CHANCE)
#: Tests run in several processes, which the first one starts.
os.environ["SEED_OF_THE_RUN"] = str(SEED)

TESTS = Path(__file__).parent

#: What `nohup` and a shell's background jobs let their programs ignore.
_OFTEN_IGNORED = (signal.SIGINT, signal.SIGHUP)
_IGNORED_VARIABLE = "SIGNALS_IGNORED_BY_THE_RUN"

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("few", deadline=None, print_blob=True, max_examples=20)
hypothesis.settings.register_profile("long", deadline=None, print_blob=True, max_examples=250)
hypothesis.settings.register_profile("fuzz", deadline=None, print_blob=True, max_examples=2_000)


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()
    # A developer's own queue, broker or database must not leak into the tests, nor they into it.
    for name in [name for name in os.environ if name.startswith(("AGENTQ_", "PG", "AWS_"))]:
        del os.environ[name]
    # `agentq init` would propose roles for whatever agent is installed here.
    os.environ["AGENTQ_AGENT"] = "none"
    _ignore_without_passing_it_on()
    chosen = config.getoption("--hypothesis-profile", default=None)
    hypothesis.settings.load_profile(chosen or "default")
    if config.getoption("--hypothesis-seed", default=None) is None:
        hypothesis.core.global_force_seed = SEED  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process remembers the passwords that it read, to hide them; a test is a process here."""
    monkeypatch.setattr(addresses, "_known", set())


def _ignore_without_passing_it_on() -> None:
    """Signals that this run was started to ignore do nothing to it, and all to what tests start.

    A signal that is ignored stays ignored in every program that is started; one that has a handler
    is back at its default there.
    """
    inherited = {each for each in _OFTEN_IGNORED if signal.getsignal(each) is signal.SIG_IGN}
    inherited.update(map(int, os.environ.get(_IGNORED_VARIABLE, "").split()))  # type: ignore[arg-type]
    os.environ[_IGNORED_VARIABLE] = " ".join(str(int(each)) for each in inherited)
    for each in inherited:
        signal.signal(each, lambda *_: None)


def pytest_collection_finish() -> None:
    """Thousands of tests are there now and stay: the collector need not look at them again."""
    gc.freeze()
    gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {SEED} (AGENTQ_SEED={SEED} repeats this run)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-way", action="store_true", help="Try all cases by all ways.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the markers from what a test is, so that nobody has to remember them."""
    if not config.getoption("--every-way") and (left_out := out_of_turn(items)):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.path.is_relative_to(TESTS):
            folder = item.path.relative_to(TESTS).parts[0]
            if folder in {"processes", "simulation"}:
                item.add_marker(folder)
            elif folder == "real_agents":
                item.add_marker("agents")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "way" in metafunc.fixturenames and (ways := ways_of(metafunc.definition)):
        metafunc.parametrize("way", ways, indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    """Beside the ledger, or through its server (see `tests.ways`)."""
    return str(getattr(request, "param", BESIDE))


@pytest.fixture(scope="session")
def session_seed() -> int:
    """The seed of this run, for tests that draw their own randomness."""
    return SEED


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A ledger in a file; folders and modules of tests say otherwise where they need another."""
    return load_settings(f"sqlite:///{tmp_path}/.agentq/ledger.db")


@pytest.fixture
def queue(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Queue]:
    """A client of the installation that `settings` describe.

    At the end its log still tells what its rows and files are, unless the test is marked `damages`.
    """
    create = not is_remote(settings)
    with Queue(installation=open_any(settings, create=create)) as opened:
        yield opened
        if request.node.get_closest_marker("damages") is None:
            assert [problems for _, problems in opened.admin.verify() if problems] == []
