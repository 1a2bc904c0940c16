"""The sample's files: a small one in the place of each public set, in its form. All of it is made up."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from turnscore_assessment.sample.sentences import TOPICS, Kind, Said, Talk

Row = dict[str, Any]
RUNS = ("free_run1", "free_run2", "icebreaker")
MODELS = ("A", "B", "C", "D", "E", "QualityControl")
GOODNESS = {"A": 0.9, "B": 0.75, "C": 0.6, "D": 0.45, "E": 0.3, "QualityControl": 0.05}
WORKERS_PER_FILE = 128
"""Chosen: a training that draws 8,000 turns of all six files leaves a fifth of the dialogues unseen."""
VOTERS = 30
ORIGIN = "made up by turnscore data sample"


def make_convai(talk: Talk) -> Iterator[Row]:
    """200 dialogues, a third between people; ratings and thumbs go with how many replies fit."""
    for number in range(200):
        goodness, has_bot = talk.generator.random(), number % 3 != 0
        turns = talk.dialogue(4, goodness)
        rating = 1 + round(4 * sum(each.grade for each in turns[1::2]) / 4)
        yield {
            "id": f"s{number}",
            "order": number,
            "participants": {"Alice": "human", "Bob": "bot" if has_bot else "human"},
            "ratings": {
                "Alice": _rate_convai(0 if has_bot else rating),
                "Bob": _rate_convai(rating),
            },
            "turns": [
                {"speaker": "Bob" if each.kind else "Alice", "text": each.text, "thumb": _thumb(talk, each)}
                for each in turns
            ],
            "topic_paragraph": ORIGIN,
        }


def _rate_convai(rating: int) -> Row:
    return {"engagement": rating, "quality": rating, "breadth": rating}


def _thumb(talk: Talk, said: Said) -> int:
    if said.kind is None or talk.generator.random() < 0.5:
        return 0
    return 2 if said.grade > 0.5 else 1


def make_dstc9(talk: Talk) -> Iterator[Row]:
    """150 dialogues of three systems that end on a system's turn, the sooner the worse it is."""
    for number in range(150):
        goodness = (0.85, 0.6, 0.35)[number % 3]
        turns = talk.dialogue(2 + round(6 * goodness * talk.generator.random()) + 1, goodness)
        good = 1 + round(4 * sum(each.grade for each in turns[1::2]) / (len(turns) // 2))
        yield {
            "id": f"dstc9-{number % 3}-{number}",
            "system": number % 3,
            "turns": _spoken(turns),
            "ratings": [{"human (overall)": good, "likeable": min(3, good)}] * 3,
        }


def make_dbdc3(talk: Talk) -> Iterator[Row]:
    """60 dialogues of three systems with votes on every system turn."""
    for number in range(60):
        system = ("IRIS", "TKTK", "YI")[number % 3]
        rows = _spoken(turns := talk.dialogue(5, (0.4, 0.6, 0.8)[number % 3]))
        for row, said in zip(rows, turns, strict=True):
            if said.kind is not None:
                right = round(VOTERS * (0.1 + 0.8 * said.grade))
                possible = min(VOTERS - right, talk.generator.randrange(8))
                row["breakdown_votes"] = {"O": right, "T": possible, "X": VOTERS - right - possible}
        yield {"id": f"{system.lower()}_{number}", "system": system, "turns": rows}


def make_text(talk: Talk) -> Iterator[Row]:
    """600 dialogues under the names of three sets."""
    for number in range(600):
        source = ("sgd", "topical_chat", "synthetic_persona_chat")[number % 3]
        yield {"source": source, "turns": [each.text for each in talk.dialogue(5, 1.0)]}


def make_ratings(talk: Talk) -> Iterator[Row]:
    """150 rated turns under the names of three sets."""
    for set_name in ("persona-zhao", "dailydialog-zhao", "convai2-grade"):
        for number in range(150):
            *said, last = talk.dialogue(2, 0.5)
            rating = 1 + 4 * (0.8 * last.grade + 0.2 * talk.generator.random())
            yield {
                "set": set_name,
                "question": "overall",
                "scale": [1, 5],
                "system": f"system {number % 3}",
                "context": [each.text for each in said],
                "response": last.text,
                "rating": round(rating, 2),
            }


def make_adversarial(talk: Talk) -> Iterator[Row]:
    """60 contexts a split, each with five replies of every kind."""
    for split in ("dev", "test"):
        for _ in range(60):
            topic = talk.pick(list(TOPICS))
            yield {
                "split": split,
                "context": [talk.say(topic), talk.reply(topic, Kind.FITTING), talk.say(topic)],
                "relevant": [talk.reply(topic, Kind.FITTING) for _ in range(5)],
                "adversarial": [talk.say(topic) for _ in range(5)],
                "random": [talk.reply(topic, Kind.ELSEWHERE) for _ in range(5)],
            }


def make_several(talk: Talk) -> Iterator[Row]:
    """200 contexts with five fitting replies."""
    for _ in range(200):
        topic = talk.pick(list(TOPICS))
        yield {"context": [talk.say(topic)], "relevant": [talk.reply(topic, Kind.FITTING) for _ in range(5)]}


def make_multiref_ratings(talk: Talk) -> Iterator[Row]:
    """Five systems' replies after a turn of each dialogue of `make_multiref_test`, with its references."""
    for number, row in enumerate(make_multiref_test(talk)):
        place = 2 * (number % 3)
        references = row["turns"][place]["references"]
        for system, goodness in (("human", 1.0), ("a", 0.8), ("b", 0.6), ("c", 0.4), ("d", 0.2)):
            kind = talk.draw_kind(goodness)
            yield {
                "system": system,
                "context_id": f"{number}_{place}",
                "context": [turn["text"] for turn in row["turns"][: place + 1]],
                "response": talk.reply(talk.pick(list(TOPICS)), kind),
                "reference": references[-1],
                "references": references,
                "rating": round(1 + 4 * Said("", kind).grade, 1),
            }


def make_multiref_test(talk: Talk) -> Iterator[Row]:
    """30 dialogues with five references per turn; always from the same seed, as the ratings name their turns."""
    shared = talk_for("dialogues with references", talk.seed)
    for _ in range(30):
        turns = shared.dialogue(3, 1.0)
        references = [[shared.reply(shared.pick(list(TOPICS)), Kind.FITTING) for _ in range(5)] for _ in turns]
        rows = [{"text": each.text, "references": found} for each, found in zip(turns, references, strict=True)]
        yield {"topic": ORIGIN, "turns": rows}


def make_assessed(talk: Talk, name: str) -> Iterator[Row]:
    """A task of six conversations for each worker, one with each system."""
    careful = name.endswith("pass")
    for number in range(WORKERS_PER_FILE):
        for position, model in enumerate(talk.generator.sample(MODELS, len(MODELS))):
            turns = talk.dialogue(10, GOODNESS[model])
            good = sum(each.grade for each in turns[1::2]) / 10 if careful else talk.generator.random()
            names = ("robotic", "interesting", "fun", "consistent", "fluent", "repetitive", "topic")
            yield {
                "worker": f"{name}-{number}",
                "hit": f"{name}-{number}",
                "position": position,
                "model": model,
                "topic": [{"round": 0, "topic": ORIGIN, "attitude": "like"}],
                "ratings": {
                    each: round(min(100.0, max(0.0, 100 * good + talk.generator.gauss(0, 12)))) for each in names
                },
                "turns": _spoken(turns),
            }


def make_pairs(talk: Talk, count: int) -> Iterator[tuple[str, str, int]]:
    """(query, reply, whether it is engaging): fitting replies are."""
    for number in range(count):
        topic, kind = talk.pick(list(TOPICS)), Kind.FITTING if number % 2 else talk.draw_kind(0.0)
        yield talk.say(topic), talk.reply(topic, kind), number % 2


def _spoken(turns: list[Said]) -> list[Row]:
    return [{"speaker": "system" if each.kind else "user", "text": each.text} for each in turns]


Make = Callable[[Talk], Iterator[Row]]
ROW_FILES: dict[str, Make] = {
    "convai2017.jsonl.gz": make_convai,
    "dstc9_interactive.jsonl.gz": make_dstc9,
    "dbdc3_dev.jsonl.gz": make_dbdc3,
    "dialogue_text.jsonl.gz": make_text,
    "turn_ratings.jsonl.gz": make_ratings,
    "adversarial_responses.jsonl.gz": make_adversarial,
    "several_responses.jsonl.gz": make_several,
    "multiref/ratings.jsonl.gz": make_multiref_ratings,
    "multiref/test.jsonl.gz": make_multiref_test,
}
ASSESSED_FILES = [f"{run}_{outcome}" for run in RUNS for outcome in ("pass", "fail")]
PAIR_FILES = {"humanAMT_engscores_utt": 60, "DD_finetune_train": 60, "DD_finetune_valid": 30}


def talk_for(file: str, seed: int) -> Talk:
    """Each file has a generator of its own, so that another file changes nothing."""
    return Talk(random.Random(f"{file} {seed}"), seed)  # noqa: S311
