"""Plugins of strangers, as an installed package would bring them: one module and entry point each.

They are found by the child process of a plugin through PYTHONPATH, and run nowhere else.
"""

from __future__ import annotations

import os
from pathlib import Path

_SEND = """\
from agentq.plugins.hooks import hookimpl

class Target:
    def __init__(self, options):
        self.options = options

    def send(self, notices):
{body}

@hookimpl
def notify(options):
    return Target(options)
"""

#: What `send` does in each of them.
SENDERS = {
    "sleeper": "import time\nwhile True: time.sleep(3600)",
    "raiser": "raise RuntimeError('no way')",
    "printer": "for _ in range(int(self.options['mb'])): print('x' * (1 << 20))",
    "eater": "held = []\nwhile True: held.append(bytearray(1 << 26))",
    "leaver": "import os\nprint('bye', flush=True)\nos._exit(3)",
    "talker": "import os\nfor file in range(3, 12):\n    try: os.write(file, b'{}\\n')\n"
    "    except OSError: pass",
    "refuser": "from agentq.core.errors import Invalid\nraise Invalid('not this one.')",
    "babbler": "return 'x' * (6 << 20)",
    "parent": "import subprocess, time\nopen(self.options['path'], 'w').write("
    "str(subprocess.Popen(['sleep', '3600']).pid))\ntime.sleep(3600)",
}

_ROBOT = """\
from agentq.agents.command import Command
from agentq.plugins.hooks import hookimpl

class Robot(Command):
    name = "robot"

@hookimpl
def agent(name):
    return Robot() if name == "robot" else None
"""

_OTHERS = {
    "robot": _ROBOT,
    "lacking": "import no_such_library_anywhere\n",
    "stray": "from agentq.plugins.hooks import hookimpl\n@hookimpl\ndef telepathy(options): ...\n",
    "empty": "from agentq.plugins.hooks import hookimpl\n@hookimpl\ndef notify(options): ...\n",
    "hanging": "import time\ntime.sleep(3600)\n",
    "useless": "from agentq.plugins.hooks import hookimpl\n@hookimpl\ndef notify(options):"
    " return object()\n",
}


def install_strangers(folder: Path) -> dict[str, str]:
    """Install them all into a folder; the environment in which they are found."""
    site = folder / "site"
    info = site / "strangers-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    for name, body in SENDERS.items():
        indented = "\n".join(f"        {line}" for line in body.splitlines())
        (site / f"strange_{name}.py").write_text(_SEND.format(body=indented))
    for name, text in _OTHERS.items():
        (site / f"strange_{name}.py").write_text(text)
    points = "\n".join(f"{name} = strange_{name}" for name in (*SENDERS, *_OTHERS))
    # One takes the name of a built-in, which it does not get.
    (info / "entry_points.txt").write_text(f"[agentq]\n{points}\nfile = strange_raiser\n")
    return {**os.environ, "PYTHONPATH": str(site)}
