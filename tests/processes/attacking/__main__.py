"""Tries the way that the task is named for."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.processes.attacking import by_files, by_processes, by_requests
from tests.processes.attacking.base import WAYS, main

assert {by_files.__name__, by_processes.__name__, by_requests.__name__} == {
    way.run.__module__ for way in WAYS.values()
}
main(os.environ["AGENTQ_TASK_ID"].removeprefix("try-"), json.loads(Path(sys.argv[1]).read_text()))
