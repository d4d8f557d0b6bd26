"""Plant small wrongs in the core, one at a time, and count how many the fast tests find.

    python -m tests.mutants.run                 # 300 of them, drawn with seed 0
    python -m tests.mutants.run --seed 7 --count 50
    python -m tests.mutants.run --all           # every one there is

Everything happens in a copy of the code. First the tests run once on the sound code, to learn which
of them reach which line; then each wrong is given to those tests, the core's own first, and the
first failure ends it. One that never ends, or does not even import, is found too. A wrong that
changes nothing anybody can see stands in equivalent.toml with the reason; it is not counted.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from random import Random

from coverage import CoverageData

from tests.mutants.sites import mutated, sites

ROOT = Path(__file__).resolve().parents[2]
CORE = Path("src/agentq/core")
#: The tests that judge, in the order in which they are asked.
FOLDERS = ("tests/core", "tests/text", "tests/ledger")
LIMIT_SECONDS = 120.0
WANTED = 0.95
#: Lines that run when a module is imported belong to every test of the core.
AT_IMPORT = ("tests/core", "tests/text")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong: the n-th of a file."""

    file: str
    number: int
    line: int
    what: str
    says: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.says} -- {self.what}"


def every_mutant(root: Path) -> list[Mutant]:
    found = []
    for path in sorted((root / CORE).glob("*.py")):
        source = path.read_text()
        lines = source.splitlines()
        for number, site in enumerate(sites(ast.parse(source))):
            says = lines[site.line - 1].strip()
            found.append(Mutant(path.name, number, site.line, site.what, says))
    return found


def equivalent_ones() -> dict[str, str]:
    """By name, why nobody can see the difference."""
    listed = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text())
    return {
        f"{each['file']}: {each['says']} -- {each['what']}": each["why"]
        for each in listed["mutant"]
    }


class Copy:
    """The code and its tests in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        for name in ("src", "tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """A Python program that sees this copy and no other; raises when it takes too long."""
        environment = os.environ | {
            "PYTHONPATH": f"{self.folder / 'src'}{os.pathsep}{self.folder}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "AGENTQ_SEED": "0",
        }
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=environment, capture_output=True,
            timeout=LIMIT_SECONDS * 5 if "coverage" in words else LIMIT_SECONDS, check=False,
        )  # fmt: skip

    def learn(self) -> dict[str, dict[int, list[str]]]:
        """By file and line, the tests that reach it, the core's own first."""
        settings = self.folder / "contexts.ini"
        settings.write_text("[run]\ndynamic_context = test_function\nsource = src/agentq/core\n")
        ran = self.run(
            "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q", "-x",
            "-p", "no:cacheprovider", *FOLDERS,
        )  # fmt: skip
        if ran.returncode:
            sys.exit(f"The tests fail on the sound code:\n{ran.stdout.decode()[-3000:]}")
        data = CoverageData(str(self.folder / ".coverage"))
        data.read()
        reached: dict[str, dict[int, list[str]]] = {}
        for file in data.measured_files():
            lines = data.contexts_by_lineno(file)
            reached[Path(file).name] = {line: _test_names(named) for line, named in lines.items()}
        return reached

    def is_found(self, mutant: Mutant, tests: list[str]) -> bool:
        """Whether some test fails with this wrong in the code."""
        path = self.folder / CORE / mutant.file
        sound = path.read_text()
        wrong, _ = mutated(sound, mutant.number)
        path.write_text(wrong)
        try:
            words = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header")
            return self.run(*words, "--hypothesis-seed=0", *tests).returncode != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            path.write_text(sound)


def _test_names(contexts: list[str]) -> list[str]:
    """Contexts are dotted names of functions; pytest wants files."""
    names = set()
    for context in contexts:
        parts = context.split(".")
        at = next((i for i, part in enumerate(parts) if part.startswith("test_")), 0)
        if at:
            names.add("::".join(("/".join(parts[: at + 1]) + ".py", *parts[at + 1 :])))
    return sorted(names, key=lambda name: (_folder_rank(name), name))


def _folder_rank(name: str) -> int:
    return next((i for i, folder in enumerate(FOLDERS) if name.startswith(folder)), len(FOLDERS))


def is_found_by_any(copy: Copy, mutant: Mutant, reached: dict[int, list[str]]) -> bool:
    """Ask the tests that reach the line; whoever reaches none is asked of all the core's."""
    tests = reached.get(mutant.line, [])
    ranked = defaultdict(list)
    for name in tests:
        ranked[_folder_rank(name)].append(name)
    batches = [ranked[rank] for rank in sorted(ranked)] or [list(AT_IMPORT)]
    return any(copy.is_found(mutant, batch) for batch in batches)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn (0)")
    parser.add_argument("--count", type=int, default=300, help="how many (300)")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--only", default="", help="those of this file")
    parser.add_argument("--jobs", type=int, default=2, help="how many are tried at once (2)")
    options = parser.parse_args(arguments)
    known = equivalent_ones()
    with tempfile.TemporaryDirectory(prefix="agentq-mutants-") as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(max(options.jobs, 1))]
        there = every_mutant(copies[0].folder)
        mutants = [each for each in there if options.only in each.file]
        gone = known.keys() - {each.name for each in there}
        if gone:
            sys.exit("equivalent.toml names what is not there:\n  " + "\n  ".join(sorted(gone)))
        drawn = [each for each in mutants if each.name not in known]
        if not options.all:
            drawn = Random(options.seed).sample(drawn, min(options.count, len(drawn)))
        print(f"seed {options.seed}: {len(drawn)} of {len(mutants)} mutants,"
              f" {len(known)} listed as equivalent", flush=True)  # fmt: skip
        return _report(copies, drawn)


def _report(copies: list[Copy], drawn: list[Mutant]) -> int:
    reached = copies[0].learn()
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def judged(mutant: Mutant) -> bool:
        copy = free.get()
        try:
            return is_found_by_any(copy, mutant, reached.get(mutant.file, {}))
        finally:
            free.put(copy)

    started, survivors = time.monotonic(), []
    with ThreadPoolExecutor(len(copies)) as pool:
        for number, (mutant, found) in enumerate(
            zip(drawn, pool.map(judged, drawn), strict=True), 1
        ):
            if not found:
                survivors.append(mutant)
                print(f"  survived: {mutant.file}:{mutant.line} {mutant.what}", flush=True)
                print(f"    {mutant.says}", flush=True)
            if number % 50 == 0:
                took = f"{time.monotonic() - started:.0f} s"
                print(f"  {number} of {len(drawn)}, {len(survivors)} survived, {took}", flush=True)
    killed = len(drawn) - len(survivors)
    share = killed / max(len(drawn), 1)
    print(f"killed {killed} of {len(drawn)} ({share:.1%}), wanted {WANTED:.0%}")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
