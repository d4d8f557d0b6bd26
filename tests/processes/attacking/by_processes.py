"""Ways that get at other processes, or leave processes behind that speak when nobody looks."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.processes.attacking.base import OPENED_BY_WORKER, UNSANDBOXED, Scene, way

SECRET = "canary-in-the-environment"


def _detach() -> bool:
    """Become a process that nobody waits for; True in it."""
    if os.fork():
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (0, 1, 2):
        os.close(number)
    signal.alarm(60)  # should nobody end it
    return True


@way("read what the worker has in its environment", possible=UNSANDBOXED)
def read_the_workers_environment(scene: Scene) -> bool:
    pid = scene.worker()
    return bool(pid) and SECRET.encode() in Path(f"/proc/{pid}/environ").read_bytes()


@way("read a password in the worker's command line")
def read_the_workers_command_line(scene: Scene) -> bool:
    pid = scene.worker()
    words = Path(f"/proc/{pid}/cmdline").read_bytes() if pid else b""
    above = Path("/proc/1/cmdline").read_bytes() if not pid else b""
    return any(each in words + above for each in (SECRET.encode(), b"postgresql://", b"agqa_"))


@way("open the ledger among the files that the worker has open", possible=OPENED_BY_WORKER)
def open_the_workers_files(scene: Scene) -> bool:
    pid = scene.worker()
    if not pid or not scene.ledger_file:
        return False
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if str(link.readlink()) == scene.ledger_file:
            return link.stat().st_size > 0
    return False


@way("find what it was not given in its own environment")
def look_at_its_own_environment(scene: Scene) -> bool:
    shown = str(os.environ) + Path("/proc/self/environ").read_text()
    secret = (SECRET, "postgresql://", "sqlite:", str(scene.folder / "agentq.toml"), "PGPASSWORD")
    return any(each in shown for each in secret)


@way("keep its token, and report once the attempt is over")
def speak_later(scene: Scene) -> bool:
    """Nothing that it leaves lives so long; if it did, the token would be good for nothing."""
    if _detach():
        while Path(scene.socket).exists():
            os.sched_yield()
        while not scene.does("POST", f"{scene.attempt}/complete", {"summary": "late"}):
            os.sched_yield()
    return False


@way("leave a process that ends the check before it can fail")
def kill_the_check(scene: Scene) -> bool:
    if _detach():
        check = str(scene.folder / "check.py").encode()
        while True:
            for each in Path("/proc").iterdir():
                if each.name.isdigit():
                    try:
                        if check in (each / "cmdline").read_bytes():
                            os.kill(int(each.name), signal.SIGKILL)
                    except OSError:
                        continue
    return False


@way("take the place of the check's interpreter by variables")
def change_variables(scene: Scene) -> bool:
    """Of itself and of what it starts; the check is started by the worker."""
    here = str(Path.cwd())
    os.environ.update({
        "LD_PRELOAD": f"{here}/evil.so", "PATH": here, "PYTHONPATH": here, "PYTHONHOME": here,
        "BASH_ENV": f"{here}/evil.sh", "ENV": f"{here}/evil.sh",
        "PYTHONSTARTUP": f"{here}/evil.py",
    })  # fmt: skip
    for name in ("evil.sh", "evil.py"):
        Path(name).write_text("exit(0)\n" if name.endswith("py") else "exit 0\n")
    return False


@way("end with every status that could mean success, and by a signal")
def exit_in_an_odd_way(scene: Scene) -> bool:
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    os.wait()
    sys.stdout.flush()
    return False


@way("end its own supervisor", alone=True)
def kill_the_supervisor(scene: Scene) -> bool:
    """Its reaper or its sandbox ends it for that; either way nobody reports it complete."""
    os.kill(os.getppid(), signal.SIGKILL)
    return False


@way("forge a verdict, and kill the worker before the check", alone=True)
def kill_the_worker(scene: Scene) -> bool:
    (scene.artifacts / "agentq").mkdir()
    forged = '{"outcome": "completed", "summary": "believe me"}'
    (scene.artifacts / "agentq" / "verdict.json").write_text(forged)
    scene.does("POST", f"{scene.attempt}/complete", {"summary": "believe me"})
    pid = scene.worker()
    if pid:
        os.kill(pid, signal.SIGKILL)
        signal.pause()
    return False
