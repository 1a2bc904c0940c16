"""Measures what a gate's second calls gain, by the label of the first reply, into results/.

    .venv-dev/bin/python experiments/gate_gain.py DATA results/gate.json

Two stand-ins for models answer the same contexts. `judged_modern`, of the part that nothing was fitted or chosen on:
the weak one says one of a context's four replies, three in ten of them with a fault, the strong one always one without;
marks are a language model's. `multiref`: the weak one is the best of four networks of 2017, the strong one a person;
marks are people's. The gate, on the shipped `quality`, takes every reply for low, asks again, and sends the better.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import typer
from quality_figures import read_starter, with_interval, write_record
from turnscore_assessment.data.dialogues import MODERN_FILE, read_judged_contexts
from turnscore_assessment.files import read_rows
from turnscore_client.integrations import GateEvent, QualityGate
from turnscore_core.engine import open_file_engine
from turnscore_wire import ScoreRequest

FAULTY = 0.3  # chosen: the share of the weak model's replies that have a fault
DRAWS = 4  # of the weak model's replies to one modern context: as many as there are
ROUNDS = 1000  # of the bootstrap over contexts


class GateCase(NamedTuple):
    """A context, and what each model says to it, with its mark from 1 to 5. `again` is the weak one's second answer."""

    context: str
    messages: list[dict[str, str]]
    weak: tuple[str, float]
    again: tuple[str, float] | None
    strong: tuple[str, float]


def read_modern(path: Path) -> Iterator[GateCase]:
    """Contexts with replies of both kinds; the weak model's are drawn."""
    chance = random.Random(0)
    for number, replies in enumerate(read_judged_contexts(path)):
        marked = [(each.system == "none", (each.response, 1 + 4 * each.labels["overall"])) for each in replies]
        fine, faulty = ([reply for is_fine, reply in marked if is_fine is wanted] for wanted in (True, False))
        if not fine or not faulty or replies[0].split != "report":
            continue
        roles = {"user": "user", "system": "assistant"}
        messages = [{"role": roles[speaker], "content": text} for speaker, text in replies[0].context]
        for _ in range(DRAWS):
            first, second = (chance.choice(faulty if chance.random() < FAULTY else fine) for _ in range(2))
            yield GateCase(str(number), messages, first, second, chance.choice(fine))


def read_multiref(path: Path) -> Iterator[GateCase]:
    """One reply of each system to each context, which the user's turn ends."""
    contexts: dict[str, dict[str, Any]] = defaultdict(dict)
    for _, row in read_rows(path):
        contexts[row["context_id"]][row["system"]] = row
    for name, by_system in contexts.items():
        said = by_system["hredf"]["context"][::-1]
        messages = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(said)]
        first, second = ((row["response"], float(row["rating"])) for row in map(by_system.get, ("hredf", "human")))
        yield GateCase(name, messages[::-1], first, None, second)


def ask_for_all(questions: Sequence[GateCase], client: Any, answer: str) -> dict[str, list[tuple[str, float, float]]]:
    """By the first reply's label: the context, the marks of the reply sent and of the second, each less the first's."""
    found: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for question in questions:
        (text, mark), (first, its_mark) = getattr(question, answer), question.weak
        told: list[GateEvent] = []

        def say(event: GateEvent, text: str = text, told: list[GateEvent] = told) -> str:
            told.append(event)
            return text

        gate = QualityGate(
            "fallback_model", fallback_model=say, min_quality=math.inf, deadline_seconds=600, client=client
        )
        sent = gate.choose(question.messages, first)
        gate.close()
        gained = question.context, 0.0 if sent == first else mark - its_mark, mark - its_mark
        found[str(told[0].score and told[0].score.label)].append(gained)
        found["any"].append(gained)
    return found


def summarize(gains: Sequence[tuple[str, float, float]], replies: int) -> dict[str, Any]:
    """Calls, and what each gained in marks, with 95 % intervals by bootstrap over contexts."""
    names, sent, always = zip(*sorted(gains, key=lambda gain: gain[0]), strict=True)
    values = np.array(sent)
    _, low, high = with_interval(list(names), lambda places: float(values[places].mean()), ROUNDS)
    return {
        "calls": len(values),
        "share of replies": round(len(values) / replies, 3),
        "gain per call": round(float(values.mean()), 2),
        "interval": [round(low, 2), round(high, 2)],
        "gain per call, the second always sent": round(float(np.mean(always)), 2),
    }


def main(data: Path, output: Path) -> None:
    """Measures, and writes the figures to OUTPUT."""
    engine = open_file_engine(None, ["quality"])
    client = SimpleNamespace(
        score=lambda *, context, response, scorers, **_: engine.answer(
            [ScoreRequest(context=context, response=response, scorers=scorers)]
        )[0]
    )
    figures: dict[str, dict[str, Any]] = {}
    for name, read in ((MODERN_FILE, read_modern), ("multiref/ratings.jsonl.gz", read_multiref)):
        questions = list(read(data / name))
        own = {
            model: round(float(np.mean([getattr(q, model)[1] for q in questions])), 2) for model in ("weak", "strong")
        }
        figures[name.split("/")[0].split(".")[0]] = own
        for action, answer in (("ask_again", "again"), ("fallback_model", "strong")):
            if asked := [each for each in questions if getattr(each, answer) is not None]:
                gains = ask_for_all(asked, client, answer)
                own[action] = {label: summarize(each, len(asked)) for label, each in sorted(gains.items())}
    engine.close()
    write_record(output, "gate_gain.py", {"bundle": read_starter("quality").manifest.reference, "figures": figures})


if __name__ == "__main__":
    typer.run(main)
