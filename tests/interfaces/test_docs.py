"""The documentation is true: what it shows is run, what it lists is complete, links lead on."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import agentq
from agentq.cli.main import cli
from agentq.client.admin import Admin
from agentq.client.claim import Claim
from agentq.client.queue import Queue
from agentq.client.task_input.fields import _FIELDS
from agentq.client.task_input.specs import FIELDS
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Spec, Task
from agentq.core.triggers import TRIGGERS, FailureKind
from agentq.protocol.envelope import task_to_dict
from agentq.settings import TABLES, roles
from docs import consoles, generate
from tests.architecture.files import ROOT

DOCS = ROOT / "docs"
PAGES = consoles.pages()
#: Everything a person wrote: generated pages prove nothing about what is explained.
WRITTEN = [page for page in PAGES if page != generate.COMMANDS]
POSTGRES = generate.NEEDS_SERVER
POSTGRES_SHOWN = "postgresql://agentq@db.example/agentq"
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")
PICTURE_BYTES_MAX = 150_000
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def with_blocks(info: str) -> list[Path]:
    return [
        page
        for page in PAGES
        if any(block.info == info for block in consoles.blocks(page.read_text("utf-8")))
    ]


# -- what is shown is run ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran_pages() -> dict[Path, list[consoles.Command]]:
    """Every page's commands, run once; the pages beside each other, to save time."""
    return consoles.run_pages([page for page in with_blocks("console") if page != POSTGRES])


def check(ran: list[consoles.Command]) -> None:
    wrong = [str(command) for command in ran if not command.holds()]
    assert not wrong, "`make docs` writes what is printed now:\n\n" + "\n\n".join(wrong)
    unannounced = [str(command) for command in consoles.unannounced_failures(ran)]
    assert not unannounced, "these fail, and the page does not say so:\n" + "\n".join(unannounced)


@pytest.mark.parametrize(
    "page", [page for page in with_blocks("console") if page != POSTGRES], ids=name_of
)
@pytest.mark.long
def test_commands_print_what_the_page_shows(
    page: Path, ran_pages: dict[Path, list[consoles.Command]]
) -> None:
    check(ran_pages[page])


@pytest.mark.long
def test_commands_of_the_postgres_guide(fresh_postgres_url: str) -> None:
    check(consoles.run_page(POSTGRES, {POSTGRES_SHOWN: fresh_postgres_url}))


@pytest.mark.parametrize("page", with_blocks("pycon"), ids=name_of)
def test_python_examples(page: Path) -> None:
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    parser = doctest.DocTestParser()
    for block in consoles.blocks(page.read_text("utf-8")):
        if block.info == "pycon":
            source = "\n".join(block.lines) + "\n"
            test = parser.get_doctest(source, names, page.name, str(page), block.start)
            runner.run(test, clear_globs=False)
            names = test.globs
    assert runner.summarize(verbose=False).failed == 0


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    # Given a page that shows one thing rightly and one wrongly, and a failure it does not mention
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- file: name.txt -->\n```text\nada\n```\n\n```console\n$ cat name.txt\nada\n"
        "$ echo 12:34:56 &&\n> echo more\n00:00:00\n…\n$ echo yes\nno\n$ false\n$ (exit 4)\n"
        "$ echo $?\n4\n```\n"
    )

    # When it is run, then exactly those are found
    ran = consoles.run_page(page)
    assert [command.holds() for command in ran] == [True, True, False, True, True, True]
    assert [command.text for command in consoles.unannounced_failures(ran)] == ["false"]
    # and writing it again mends what is shown, and nothing else
    again = consoles.rewritten(page, ran)
    assert again == page.read_text().replace("$ echo yes\nno\n", "$ echo yes\nyes\n")


# -- what is generated is fresh ------------------------------------------------------------------


STALE = """
from docs import generate
for page, text in generate.generated().items():
    if not page.exists() or page.read_text("utf-8") != text:
        print(page)
"""


def test_generated_pages_are_up_to_date() -> None:
    """In a process of its own: a command that a test has run by itself keeps its help option."""
    done = subprocess.run(
        [sys.executable, "-c", STALE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not done.stdout, f"run `make docs`: {done.stdout}"


# -- what is listed is complete ------------------------------------------------------------------


def missing(names: Iterator[str] | list[str], text: str, form: str) -> list[str]:
    """The names that the text does not have in this form."""
    return sorted({name for name in names if form.format(name) not in text})


def commands() -> list[tuple[str, click.Command]]:
    return [
        (name, command)
        for name, command, _ in generate.walk(cli, "agentq")
        if not isinstance(command, click.Group)
    ]


def test_every_command_is_explained_somewhere() -> None:
    text = "\n".join(page.read_text("utf-8") for page in WRITTEN)
    assert missing([name for name, _ in commands()], text, "{}") == []


def test_every_command_and_option_says_what_it_is_for() -> None:
    speechless = [name for name, command in commands() if not command.help]
    speechless += [
        f"{name} {option.opts[0]}"
        for name, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert speechless == []


def test_every_option_of_submit_is_a_field_that_is_explained() -> None:
    page = text_of("guides/writing-tasks.md")
    submit = dict(commands())["agentq submit"]
    words = [option.opts[0].lstrip("-") for option in submit.params]
    not_fields = {"file", "bulk", "json", "url", "help", "ref", "words", "wait"}
    fields = [word.replace("-", "_") for word in words if word not in not_fields]
    assert len(fields) > 15
    singular = {"label": "labels"}
    named = [singular.get(field, field) for field in fields if field != "quiet"]
    assert missing(named, page, "`{}`") == []


def test_every_field_of_a_task_file_is_explained() -> None:
    page = text_of("guides/writing-tasks.md")
    assert missing([*_FIELDS], page, "`{}`") == []
    # What only programs may say: other spellings of the same are left out
    only_programs = set(FIELDS) - set(_FIELDS) - {"task_id", "sender"}
    assert missing([*only_programs], page, "`{}`") == []


def test_every_state_and_trigger_is_explained() -> None:
    page = text_of("life-of-a-task.md")
    assert missing([str(state) for state in State], page, "\n| `{}` |") == []
    assert missing([*TRIGGERS], page, "\n| **{}** | ") == []
    assert missing([str(kind) for kind in FailureKind], page, "`{}`") == []
    assert len(State) == 9 and "one of nine states" in page
    assert len(TRIGGERS) == 30 and "one of thirty triggers" in page


def test_every_setting_is_explained() -> None:
    page = text_of("reference/settings.md")
    source = (ROOT / "src" / "agentq" / "settings" / "__init__.py").read_text("utf-8")
    assert missing(re.findall(r'"(AGENTQ_\w+|NO_COLOR)"', source), page, "`{}`") == []
    names = [*TABLES, *(name for known in TABLES.values() for name in known), *roles.NAMES]
    assert [name for name in names if f"`{name}`" not in page and f"`[{name}" not in page] == []


def test_every_error_code_is_explained() -> None:
    page = text_of("reference/errors.md")
    codes = {code for file in (ROOT / "src").rglob("*.py") for code in _codes(file)}
    assert len(codes) > 15
    assert missing(sorted(codes), page, "`{}`") == []


def _codes(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "code":
            value = getattr(node.value, "value", None)
            if isinstance(value, str):
                yield value


def test_every_field_of_the_json_shapes_is_explained() -> None:
    page = text_of("reference/json.md")
    spec = Spec("task-1", "builder", after=("task-0",), base=("task-0",), extra={"new": 1})
    task = task_to_dict(Task(spec, State.READY, 1, 0, 1, 1))
    tasks, _, events = page.partition("## An event")
    rows = re.findall(r"^\| `(\w+)` \|", tasks, re.MULTILINE)
    assert sorted(rows) == sorted(task)
    with Queue.create("sqlite://:memory:") as queue:
        event = queue._client.event_json(queue.history(queue.submit("a", "do it").id)[0])
    rows = re.findall(r"^\| `(\w+)` \|", events.partition("\n## ")[0], re.MULTILINE)
    assert sorted(rows) == sorted(event)


def test_the_sdk_is_explained() -> None:
    page = text_of("reference/sdk.md")
    words = set(re.findall(r"\b(?:q|claim)\.(\w+)", page))
    for block in consoles.blocks(page):
        page = page.replace("\n".join(block.lines), "")
    for code in re.findall(r"`([^`]+)`", page.replace("```", "")):
        words |= set(re.findall(r"\w+", code))
    for kind in (Queue, Claim, Admin):
        public = {name for name in dir(kind) if not name.startswith("_")}
        assert sorted(public - words) == [], f"of {kind.__name__}"
    assert sorted(set(agentq.__all__) - words - {"__version__"}) == []
    assert sorted(set(RoleLimits.__struct_fields__) - words) == []


# -- what is linked is there ---------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on the web."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("[AC]*.md"))], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for block in consoles.blocks(text):
        text = text.replace("\n".join(block.lines), "")
    broken = []
    for target in LINK.findall(text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    assert broken == []


def test_pictures_are_there_small_and_shown() -> None:
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in PICTURE.findall(page.read_text("utf-8"))
    }
    assert set((DOCS / "pictures").iterdir()) <= shown
    assert [each.name for each in shown if not each.is_file()] == []
    assert [each.name for each in shown if each.stat().st_size > PICTURE_BYTES_MAX] == []


def test_every_page_is_linked_from_the_readme_or_another_page() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in LINK.findall(page.read_text("utf-8"))
        if "://" not in target and target.partition("#")[0]
    }
    assert [name_of(page) for page in PAGES[1:] if page.resolve() not in linked] == []
