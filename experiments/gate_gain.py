"""Measures what a gate's second calls gain, by the label of the first reply, into results/.

    .venv-dev/bin/python experiments/gate_gain.py DATA results/gate.json

Two stand-ins for models answer the same contexts. `judged_modern`, of the part that nothing was fitted or chosen on:
the weak one says one of a context's four replies, three in ten of them with a fault, the strong one always one without;
marks are a language model's. `multiref`: the weak one is the best of four networks of 2017, the strong one a person;
marks are people's. The gate, on the shipped `quality`, takes every reply for low, asks again, and sends the better.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from quality_figures import with_interval, write_record
from turnscore_assessment.data.dialogues import MODERN_FILE, read_judged_contexts
from turnscore_assessment.files import read_rows
from turnscore_client.integrations import GateEvent, QualityGate
from turnscore_core.engine import LocalFileEngine, open_file_engine
from turnscore_wire import ScoreReply, ScoreRequest

MULTIREF_FILE = "multiref/ratings.jsonl.gz"
FAULTY = 0.3  # chosen: the share of the weak model's replies that have a fault
DRAWS = 4  # of the weak model's replies to one modern context: as many as there are
ROUNDS = 1000  # of the bootstrap over contexts


@dataclass(frozen=True)
class Question:
    """A context, and what each model says to it, with its mark from 1 to 5. `again` is the weak one's second answer."""

    context: str
    messages: list[dict[str, str]]
    weak: tuple[str, float]
    again: tuple[str, float] | None
    strong: tuple[str, float]


def read_modern(path: Path, seed: int = 0) -> Iterator[Question]:
    """Contexts with replies of both kinds; the weak model's are drawn."""
    chance = random.Random(seed)
    for number, replies in enumerate(read_judged_contexts(path)):
        if not replies or replies[0].split != "report":
            continue
        marked = [(each.response, 1 + 4 * each.labels["overall"], each.system == "none") for each in replies]
        fine = [each[:2] for each in marked if each[2]]
        faulty = [each[:2] for each in marked if not each[2]]
        if not fine or not faulty:
            continue
        roles = {"user": "user", "system": "assistant"}
        messages = [{"role": roles[speaker], "content": text} for speaker, text in replies[0].context]
        for _ in range(DRAWS):
            first, second = (chance.choice(faulty if chance.random() < FAULTY else fine) for _ in range(2))
            yield Question(str(number), messages, first, second, chance.choice(fine))


def read_multiref(path: Path, weak: str = "hredf", strong: str = "human") -> Iterator[Question]:
    """One reply of each system to each context, which the user's turn ends."""
    contexts: dict[str, dict[str, Any]] = {}
    for _, row in read_rows(path):
        contexts.setdefault(row["context_id"], {})[row["system"]] = row
    for name, by_system in contexts.items():
        said = by_system[weak]["context"]
        roles = ("user", "assistant") if len(said) % 2 else ("assistant", "user")
        messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(said)]
        first, second = ((by_system[each]["response"], float(by_system[each]["rating"])) for each in (weak, strong))
        yield Question(name, messages, first, None, second)


class LocalClient:
    """What a gate asks of a client, by an engine in this process."""

    def __init__(self, engine: LocalFileEngine) -> None:
        self._engine = engine

    def score(self, *, context: Any, response: str, scorers: list[str], **_: Any) -> ScoreReply:
        """The scores of one turn."""
        [reply] = self._engine.answer([ScoreRequest(context=context, response=response, scorers=scorers)])
        assert isinstance(reply, ScoreReply), reply
        return reply


Gain = tuple[str, float, float]  # the context; the sent reply's mark less the first's; the second's less the first's


def ask_for_all(questions: Sequence[Question], client: Any, answer: str) -> dict[str, list[Gain]]:
    """What is gained, by the first reply's label."""
    found: dict[str, list[Gain]] = {}
    for question in questions:
        second = getattr(question, answer)
        told: list[GateEvent] = []

        def say(event: GateEvent, text: str = second[0], told: list[GateEvent] = told) -> str:
            told.append(event)
            return text

        gate = QualityGate(
            "fallback_model", fallback_model=say, min_quality=math.inf, deadline_seconds=600, client=client
        )
        sent = gate.choose(question.messages, question.weak[0])
        gate.close()
        [event] = told
        assert event.score is not None
        marks = dict([second, question.weak])  # equal texts are the first
        gained = question.context, marks[sent] - question.weak[1], second[1] - question.weak[1]
        found.setdefault(str(event.score.label), []).append(gained)
    return found


def summarize(gains: Sequence[Gain], replies: int) -> dict[str, Any]:
    """Calls, and what each gained in marks, with 95 % intervals by bootstrap over contexts."""
    gains = sorted(gains, key=lambda gain: gain[0])
    values = np.array([gain for _, gain, _ in gains])
    _, low, high = with_interval([name for name, _, _ in gains], lambda places: float(values[places].mean()), ROUNDS)
    return {
        "calls": len(values),
        "share of replies": round(len(values) / replies, 3),
        "gain per call": round(float(values.mean()), 2),
        "interval": [round(low, 2), round(high, 2)],
        "gain per call, the second always sent": round(sum(gain for _, _, gain in gains) / len(gains), 2),
    }


def measure(questions: Sequence[Question], client: Any) -> dict[str, Any]:
    """The figures of each way to ask again, by label and over all."""
    figures: dict[str, Any] = {"weak": _mean(questions, "weak"), "strong": _mean(questions, "strong")}
    for action, answer in (("ask_again", "again"), ("fallback_model", "strong")):
        asked = [each for each in questions if getattr(each, answer) is not None]
        if asked:
            by_label = ask_for_all(asked, client, answer)
            by_label["any"] = [gain for gains in by_label.values() for gain in gains]
            figures[action] = {label: summarize(gains, len(asked)) for label, gains in sorted(by_label.items())}
    return figures


def _mean(questions: Sequence[Question], model: str) -> float:
    return round(float(np.mean([getattr(each, model)[1] for each in questions])), 2)


def main(data: Path, output: Path) -> None:
    """Measures, and writes the figures to OUTPUT."""
    engine = open_file_engine(None, ["quality"])
    sets = ((MODERN_FILE, read_modern), (MULTIREF_FILE, read_multiref))
    figures = {
        name.split("/")[0].split(".")[0]: measure(list(read(data / name)), LocalClient(engine))
        for name, read in sets
        if (data / name).exists()
    }
    engine.close()
    write_record(output, "gate_gain.py", {"figures": figures})


if __name__ == "__main__":
    typer.run(main)
