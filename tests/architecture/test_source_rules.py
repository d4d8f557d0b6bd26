"""Style is a test: what AGENTS.md asks of every file, checked on every file.

Each rule collects all that break it, so that one run shows the whole list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import pytest

from tests.architecture.files import ROOT, SourceFile, all_files, python_files

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

#: All that the pure core may lean on; none of it can see a clock, a disk, a network or chance.
CORE_MAY_IMPORT = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "operator",
    "json",
    "math",
    # Structs: dataclasses of forty fields cost a hundred times as much (see `core.values`).
    "msgspec",
    "re",
    "types",
    "typing",
}

#: `datetime` writes and reads timestamps in the core; these would ask the machine what time it is.
CLOCKS = (".now", ".utcnow", ".today")

#: Names that say nothing about what is inside.
EMPTY_NAMES = {"common", "helper", "helpers", "misc", "shared", "util", "utils"}

#: Written by tools or by others, or full of hashes: style is not ours to set there.
GENERATED = re.compile(r"^(LICENSE|requirements/.*\.txt)$")

#: Package indexes, and folders that exist on one person's machine only.
ADDRESS = re.compile(
    r"(?:pypi|pythonhosted|npmjs|debian)\.(?:org|com)\b|--(?:extra-)?index-url|--find-links"
    r"|(?<![\w.$}~-])/(?:home|Users)/[\w.-]+/|(?<![\w.$}~-])/(?:root|work)/\w"
)

UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|\bNotImplementedError\b")

#: This file must be able to name what it forbids.
RULES = "tests/architecture/test_source_rules.py"


def assert_none(broken: Iterable[str], rule: str) -> None:
    found = list(broken)
    if found:
        pytest.fail(f"{rule}\n  " + "\n  ".join(found), pytrace=False)


def text_files() -> Iterator[SourceFile]:
    for file in all_files():
        if not GENERATED.match(file.name) and file.name != RULES and "\0" not in file.text[:4096]:
            yield file


def calls(file: SourceFile, *dotted: str) -> Iterator[int]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in dotted:
            yield node.lineno


def test_files_fit_in_the_head() -> None:
    assert_none(
        (
            f"{file}: {len(file.lines)} lines"
            for file in python_files()
            if len(file.lines) > FILE_LINES_MAX
        ),
        f"A file has at most {FILE_LINES_MAX} lines (aim for 300): split it by responsibility.",
    )


def test_functions_fit_on_a_screen() -> None:
    def long_ones() -> Iterator[str]:
        for file in python_files():
            for function in file.functions():
                length = (function.end_lineno or 0) - function.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    yield f"{file}:{function.lineno} {function.name}: {length} lines"

    assert_none(long_ones(), f"A function has at most {FUNCTION_LINES_MAX} lines.")


def test_modules_are_named_for_what_they_hold() -> None:
    assert_none(
        (
            file.name
            for file in python_files()
            if EMPTY_NAMES & set(file.name.removesuffix(".py").split("/"))
        ),
        f"No module or package is called one of {sorted(EMPTY_NAMES)}.",
    )


def test_a_class_name_has_one_meaning() -> None:
    """Also private ones: whoever greps for a class finds one."""
    places: dict[str, list[str]] = {}
    for file in python_files("src/agentq"):
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{file}:{node.lineno}")
    assert_none(
        (f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1),
        "One word, one meaning: no two classes of the package have the same name.",
    )


def test_no_error_is_swallowed() -> None:
    def swallowed() -> Iterator[str]:
        for file in python_files():
            for node in ast.walk(file.tree):
                if not isinstance(node, ast.ExceptHandler):
                    continue
                caught = "" if node.type is None else ast.unparse(node.type)
                if not caught:
                    yield f"{file}:{node.lineno} bare except"
                elif caught in {"Exception", "BaseException"} and _does_nothing(node.body):
                    yield f"{file}:{node.lineno} except {caught} that does nothing"

    assert_none(swallowed(), "Catch what you expect, and do something about it.")


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass | ast.Continue)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def test_tests_wait_on_signals_and_never_sleep() -> None:
    assert_none(
        (
            f"{file}:{line}"
            for file in python_files("tests")
            if file.name != "tests/eventually.py"
            for line in calls(file, "time.sleep", "sleep")
        ),
        "No time.sleep in tests: wait for the event itself, or with tests.eventually.",
    )


def test_the_core_imports_only_what_is_pure() -> None:
    assert_none(
        (
            f"{file}:{line} imports {module}"
            for file in python_files("src/agentq/core")
            for line, module in file.imports()
            if module not in CORE_MAY_IMPORT and not f"{module}.".startswith("agentq.core.")
        ),
        f"agentq.core may import itself and {sorted(CORE_MAY_IMPORT)}.",
    )


def test_the_core_reads_no_clock() -> None:
    assert_none(
        (
            f"{file}:{node.lineno} {ast.unparse(node.func)}"
            for file in python_files("src/agentq/core")
            for node in ast.walk(file.tree)
            if isinstance(node, ast.Call) and f".{ast.unparse(node.func)}".endswith(CLOCKS)
        ),
        "The core reads no clock: `now` is an argument.",
    )


def test_only_settings_reads_the_environment() -> None:
    def readers() -> Iterator[str]:
        for file in python_files("src"):
            if file.name.startswith("src/agentq/settings/"):
                continue
            for node in ast.walk(file.tree):
                if isinstance(node, ast.Attribute):
                    word = node.attr if ast.unparse(node.value) == "os" else ""
                elif isinstance(node, ast.alias):
                    word = node.name
                else:
                    continue
                if word in {"environ", "environb", "getenv", "getenvb"}:
                    yield f"{file}:{node.lineno} {word}"

    assert_none(readers(), "Only settings reads the environment; others are given values.")


def test_only_the_command_line_prints() -> None:
    assert_none(
        (
            f"{file}:{line}"
            for file in python_files("src")
            if not file.name.startswith("src/agentq/cli/")
            for line in calls(file, "print", "sys.stdout.write", "sys.stderr.write")
        ),
        "A library does not print: return the value, or raise the error.",
    )


def test_every_test_module_asserts() -> None:
    def idle() -> Iterator[str]:
        for file in python_files("tests"):
            if not file.name.rpartition("/")[2].startswith("test_"):
                continue
            if not any(_checks_something(node) for node in ast.walk(file.tree)):
                yield file.name

    assert_none(idle(), "A test module that asserts nothing proves nothing.")


def _checks_something(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].startswith(
        ("assert", "raises", "run_state_machine", "check", "exercise")
    )


def test_every_test_folder_is_run() -> None:
    makefile = (ROOT / "Makefile").read_text()
    folders = {
        "/".join(file.name.split("/")[:2])
        for file in python_files("tests")
        if file.name.rpartition("/")[2].startswith("test_")
    }
    assert_none(
        (folder for folder in sorted(folders) if not re.search(rf"{folder}\b", makefile)),
        "Every folder with tests is named in the Makefile, so that `make test` or `check` runs it.",
    )


def test_no_file_names_an_index_or_a_home_folder() -> None:
    def addresses() -> Iterator[str]:
        for file in all_files():
            if file.name in {RULES, "LICENSE"}:
                continue
            for number, line in enumerate(file.lines, start=1):
                found = ADDRESS.search(line)
                if found:
                    yield f"{file}:{number} {found.group()}"

    assert_none(addresses(), "The repository names no package index and no one's own folders.")


def test_nothing_is_left_unfinished() -> None:
    assert_none(
        (
            f"{file}:{number} {found.group()}"
            for file in text_files()
            for number, line in enumerate(file.lines, start=1)
            if (found := UNFINISHED.search(line))
        ),
        "Finish it, or open an issue: no notes to ourselves in the code.",
    )


def test_the_rules_see_the_files() -> None:
    """The rules above hold trivially for no files at all; so make sure that there are some."""
    names = {file.name for file in all_files()}
    assert {"Makefile", "pyproject.toml", RULES} <= names
    assert len(python_files("src")) > 5
    assert not any(name.startswith((".venv/", ".boot/")) for name in names)
