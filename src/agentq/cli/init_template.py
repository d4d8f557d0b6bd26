"""`agentq init --template`: the workflow files of a way to work, written beside agentq.toml."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from agentq.cli.screen import clean, paint, say

#: Template -> the folders whose files it has, and what is run first.
TEMPLATES: dict[str, tuple[tuple[str, ...], str]] = {
    "trio": (("trio", "shared"), 'agentq run coordinate --input goal="…"'),
    "kanban": (("kanban", "shared"), 'agentq run card --input card="…"'),
}
_FOLDER = Path(__file__).resolve().parent.parent / "init_templates"


@dataclass
class WrittenTemplate:
    """Which workflow files were written, and which were there and stay as they are."""

    name: str = ""
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object] | None:
        if not self.name:
            return None
        return {"name": self.name, "written": self.written, "kept": self.kept}


def write_template(name: str, folder: Path, undo: ExitStack) -> WrittenTemplate:
    """Write the workflows of a template into `folder`; files that are there are never changed."""
    done = WrittenTemplate(name)
    if not name:
        return done
    if not folder.exists():
        folder.mkdir(parents=True)
        undo.callback(folder.rmdir)
    for source in template_files(name):
        target = folder / source.name
        if target.exists() or target.is_symlink():
            done.kept.append(source.stem)
            continue
        with target.open("x", encoding="utf-8") as file:
            undo.callback(target.unlink)
            file.write(source.read_text("utf-8"))
        done.written.append(source.stem)
    return done


def template_files(name: str) -> list[Path]:
    """The workflow files of a template, by name."""
    folders, _ = TEMPLATES[name]
    return sorted(
        (file for each in folders for file in (_FOLDER / each).glob("*.md")),
        key=lambda file: file.name,
    )


def show_template(done: WrittenTemplate) -> None:
    """Say which workflows there are now, and how the first one is run."""
    if not done.name:
        return
    good = paint("✓", "green")
    if done.written:
        say(f"{good} workflows  {clean(', '.join(done.written))}")
    if done.kept:
        say(f"  these were there, and stay as they are: {clean(', '.join(done.kept))}")
    say("next:")
    rows = (
        ("agentq up", "starts workers, and advances runs"),
        (TEMPLATES[done.name][1], "starts the first run"),
        ("agentq runs", "shows what becomes of it"),
    )
    for command, what in rows:
        say(f"  {paint(f'{command:<44}', 'bold')} {what}")
