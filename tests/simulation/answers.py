"""What reviewers hand in, and what it means: a table, so that nobody has to parse it here."""

from __future__ import annotations

from dataclasses import dataclass

from agentq.core.triggers import Ruling


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a review says of an attempt: the role that judged, and the attempt it looked at."""

    ruling: Ruling
    score: int
    notes: str
    role: str = ""
    of: int = 0


#: Reviews as agents write them: good ones, and what is none (None).
ANSWERS: dict[str, Judgement | None] = {
    '{"verdict":"accept","score":100}': Judgement(Ruling.ACCEPT, 100, ""),
    '{"verdict":"accept","score":70,"notes":"fair"}': Judgement(Ruling.ACCEPT, 70, "fair"),
    '{"verdict":"accept","score":20,"notes":"weak"}': Judgement(Ruling.ACCEPT, 20, "weak"),
    '{"verdict":"accept","notes":"no number"}': Judgement(Ruling.ACCEPT, -1, "no number"),
    '{"verdict":"changes","score":40,"notes":"more tests"}': Judgement(
        Ruling.CHANGES, 40, "more tests"
    ),
    '{"notes":"names","verdict":"changes"}': Judgement(Ruling.CHANGES, -1, "names"),
    '{"verdict":"reject","score":0}': Judgement(Ruling.REJECT, 0, ""),
    '{"verdict":"changes","score":40}': None,
    '{"verdict":"splendid","score":100}': None,
    '{"verdict":"accept","score":101}': None,
    '["accept"]': None,
    "": None,
}
SPLENDID = next(iter(ANSWERS))
ASKING = [data for data, said in ANSWERS.items() if said and said.ruling is Ruling.CHANGES]


def meaning(data: str) -> Judgement | None:
    """What a structured result says as a review; None if it is none."""
    return ANSWERS.get(data)
