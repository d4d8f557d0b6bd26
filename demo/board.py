"""The board beside the story: a server of the demonstration's own, and a link into it."""

from __future__ import annotations

import json
import re
import subprocess
import threading

from stage import AGENTQ, PATIENCE_SECONDS, Stage, expect

_SERVING = re.compile(rb"Serving on (http://\S+);")


class Board:
    """`agentq serve` over the stage's installation."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        environment = {**stage.environment}
        environment.pop("AGENTQ_QUIET", None)  # it says where it serves
        self._log = stage.folder / "board.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(AGENTQ), "serve", "--port", "0"], cwd=stage.folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE,
            )  # fmt: skip
        self._heard = threading.Event()
        self._url = ""
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := _SERVING.search(line):
                self._url = found[1].decode()
                self._heard.set()

    def link(self) -> str:
        """A link that logs one browser in, once."""
        expect(self._heard.wait(PATIENCE_SECONDS), "the board is served")
        words = ("login", "--server", self._url, "--json")
        found: str = json.loads(self._stage.agentq(*words, quiet=True))["link"]
        return found

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
