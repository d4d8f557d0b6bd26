"""agentq through its public SDK, on whichever store the URL names."""

from __future__ import annotations

from agentq import Queue
from bench.body import instructions_for, number_in
from bench.side import ROLE, Side

WAIT_SECONDS = 30.0


class AgentqSide(Side):
    def create(self) -> None:
        self._queue = Queue(self.place.url)

    def submit_one(self, number: int) -> None:
        self._queue.submit(to=ROLE, instructions=instructions_for(number))

    def submit_batch(self, numbers: range) -> bool:
        self._queue.submit_many(
            [{"to": ROLE, "instructions": instructions_for(number)} for number in numbers]
        )
        return True

    def drain(self, count: int, batch: int) -> float:
        self.body.expect(count)
        if batch == 1:
            for _ in range(count):
                claim = self._queue.claim(ROLE)
                assert claim is not None
                self.body.run(number_in(claim.task.instructions))
                claim.complete(summary="appended")
            return self.body.seconds_since_first()
        done = 0
        while done < count:
            claims = self._queue.claim_many(ROLE, n=min(batch, count - done))
            for claim in claims:
                self.body.run(number_in(claim.task.instructions))
            refused = self._queue.complete_many([(claim, "appended") for claim in claims])
            assert not refused, refused
            done += len(claims)
        return self.body.seconds_since_first()

    def serve(self) -> None:
        while True:
            claim = self._queue.claim(ROLE, wait=WAIT_SECONDS)
            if claim is None:
                continue
            with claim:
                self.body.run(number_in(claim.task.instructions))
                claim.complete(summary="appended")
