"""How long a command takes to start: `agentq status ID` beside a minimal click program.

The commands run in turn, many times, with compiled bytecode; the wall time of each is taken from
fork to exit. One pass over all commands is one round. Processor time is listed too: on a busy
machine it says more about the programs and less about their neighbours.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.options import Options, rotated
from bench.report import Report, Target, progress

MINE, CLICK, BARE = "agentq status", "minimal click", "python -c pass"
FIGURE, CPU_FIGURE = "start-up", "start-up CPU"

TARGETS = [Target(FIGURE, MINE, "<=", 2.0, against=CLICK)]

# What a click program must do at the least: a group, a command, an argument, an answer.
MINIMAL_CLICK = """#!{python}
import click

@click.group()
def main():
    pass

@main.command()
@click.argument("task_id")
def status(task_id):
    click.echo(task_id)

if __name__ == "__main__":
    main()
"""


def clean_environment() -> dict[str, str]:
    """Without what would keep Python from using bytecode, or point agentq elsewhere."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONSTARTUP")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in unwanted and not name.startswith("AGENTQ_")
    }


def time_one(command: list[str], folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Milliseconds of one run: from fork to exit, and on a processor."""
    started = time.perf_counter()
    child = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    wall = (time.perf_counter() - started) * 1e3
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {child.returncode}")
    return {FIGURE: wall, CPU_FIGURE: (usage.ru_utime + usage.ru_stime) * 1e3}


def prepare(folder: Path, environment: dict[str, str], report: Report) -> dict[str, list[str]]:
    program = folder / "minimal-click"
    program.write_text(MINIMAL_CLICK.format(python=sys.executable))
    commands = {
        BARE: [sys.executable, "-c", "pass"],
        CLICK: [sys.executable, str(program), "status", "task-1"],
    }
    agentq = Path(sys.executable).parent / "agentq"
    submit = ["submit", "--to", "bench", "--id", "task-1", "--instructions", "be counted"]
    try:
        for words in (["init"], submit):
            subprocess.run(
                [str(agentq), *words], cwd=folder, env=environment, check=True,
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
            )  # fmt: skip
        commands[MINE] = [str(agentq), "status", "task-1"]
    except FileNotFoundError:
        report.fail(f"{MINE}: no agentq command beside {sys.executable}")
    except subprocess.CalledProcessError as failed:
        report.fail(f"{MINE}: {' '.join(failed.cmd)}: {failed.stderr.strip()[-500:]}")
    return commands


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    environment = clean_environment()
    folder = Path(tempfile.mkdtemp(prefix="aqb-"))
    try:
        commands = prepare(folder, environment, report)
        for command in commands.values():
            time_one(command, folder, environment)
        progress(f"start-up, {options.starts} runs of each command in turn")
        for number in range(options.starts):
            for name in rotated(list(commands), number):
                taken = time_one(commands[name], folder, environment)
                for figure, value in taken.items():
                    report.keep(figure, name, number, value, "ms")
        for name in commands:
            progress(f"  {FIGURE}: {name} {report.spread(FIGURE, name)} ms")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
