"""A small made-up sample of every public set, of our own sentences, so that each command can be tried.

The same seed gives the same bytes. Nothing that is measured or trained on it means anything.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from turnscore_assessment.data.dialogues import SAMPLE_FILE
from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.files import to_csv, write_rows, write_text

SENTENCES: dict[str, Any] = json.loads(files(__package__).joinpath("sample_sentences.json").read_text(encoding="utf-8"))
TOPICS: dict[str, list[str]] = SENTENCES["topics"]


ReplyKind = Literal["fitting", "dull", "elsewhere", "rude"]  # How a reply relates to what was said.
# The made-up grade of a reply of this kind, from 0 to 1.
GRADES: dict[ReplyKind, float] = {"fitting": 1.0, "dull": 0.4, "elsewhere": 0.2, "rude": 0.0}


@dataclass(frozen=True)
class MadeUpTurn:
    """One turn of made-up talk; a reply has a grade."""

    text: str
    kind: ReplyKind | None = None

    @property
    def grade(self) -> float:
        return 1.0 if self.kind is None else GRADES[self.kind]


@dataclass(frozen=True)
class SmallTalk:
    """Draws sentences; the same generator gives the same ones."""

    generator: random.Random
    seed: int = 0

    def pick(self, options: Sequence[str]) -> str:
        return self.generator.choice(options)

    def say(self, topic: str) -> str:
        """What somebody says of the topic."""
        return self._fill(self.pick(SENTENCES["sayings"]), topic)

    def reply(self, topic: str, kind: ReplyKind) -> str:
        """A reply of that kind to something of the topic."""
        if kind == "dull":
            return self.pick(SENTENCES["dull"])
        if kind == "rude":
            return self._fill(self.pick(SENTENCES["rude"]), topic)
        other = topic if kind == "fitting" else self.pick([each for each in TOPICS if each != topic])
        return self._fill(self.pick(SENTENCES["fitting"]), other)

    def draw_kind(self, goodness: float) -> ReplyKind:
        """A fitting reply with that probability, else one of the others."""
        if self.generator.random() < goodness:
            return "fitting"
        return self.generator.choices(("dull", "elsewhere", "rude"), weights=(4, 4, 1))[0]

    def dialogue(self, exchanges: int, goodness: float) -> list[MadeUpTurn]:
        """So many turns of a user, each followed by a reply; the user reacts to the reply before."""
        topic = self.pick(list(TOPICS))
        turns: list[MadeUpTurn] = []
        before: ReplyKind | None = None
        for _ in range(exchanges):
            mood = "" if before is None else self.pick(SENTENCES["happy" if before == "fitting" else "unhappy"]) + " "
            before = self.draw_kind(goodness)
            turns += [MadeUpTurn(f"{mood}{self.say(topic)}"), MadeUpTurn(self.reply(topic, before), before)]
            if self.generator.random() < 0.2:
                topic = self.pick(list(TOPICS))
        return turns

    def _fill(self, template: str, topic: str) -> str:
        text = template.format(
            topic=topic,
            thing=self.pick(TOPICS[topic]),
            person=self.pick(SENTENCES["people"]),
            time=self.pick(SENTENCES["times"]),
            deed=self.pick(SENTENCES["deeds"]),
        )
        return text[0].upper() + text[1:] if template in SENTENCES["fitting"] else text


Row = dict[str, Any]
RUNS = ("free_run1", "free_run2", "icebreaker")
MODELS = ("A", "B", "C", "D", "E", "QualityControl")
GOODNESS = {"A": 0.9, "B": 0.75, "C": 0.6, "D": 0.45, "E": 0.3, "QualityControl": 0.05}
VOTERS = 30
ORIGIN = "made up by turnscore data sample"


def make_convai(talk: SmallTalk) -> Iterator[Row]:
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
                name: dict.fromkeys(("engagement", "quality", "breadth"), given)
                for name, given in (("Alice", 0 if has_bot else rating), ("Bob", rating))
            },
            "turns": [
                {"speaker": "Bob" if each.kind else "Alice", "text": each.text, "thumb": _thumb(talk, each)}
                for each in turns
            ],
            "topic_paragraph": ORIGIN,
        }


def _thumb(talk: SmallTalk, said: MadeUpTurn) -> int:
    if said.kind is None or talk.generator.random() < 0.5:
        return 0
    return 2 if said.grade > 0.5 else 1


def make_dstc9(talk: SmallTalk) -> Iterator[Row]:
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


def make_dbdc3(talk: SmallTalk) -> Iterator[Row]:
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


def make_text(talk: SmallTalk) -> Iterator[Row]:
    """600 dialogues under the names of three sets."""
    for number in range(600):
        source = ("sgd", "topical_chat", "synthetic_persona_chat")[number % 3]
        yield {"source": source, "turns": [each.text for each in talk.dialogue(5, 1.0)]}


def make_ratings(talk: SmallTalk) -> Iterator[Row]:
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


def make_adversarial(talk: SmallTalk) -> Iterator[Row]:
    """60 contexts a split, each with five replies of every kind."""
    for split in ("dev", "test"):
        for _ in range(60):
            topic = talk.pick(list(TOPICS))
            yield {
                "split": split,
                "context": [talk.say(topic), talk.reply(topic, "fitting"), talk.say(topic)],
                "relevant": [talk.reply(topic, "fitting") for _ in range(5)],
                "adversarial": [talk.say(topic) for _ in range(5)],
                "random": [talk.reply(topic, "elsewhere") for _ in range(5)],
            }


def make_several(talk: SmallTalk) -> Iterator[Row]:
    """200 contexts with five fitting replies."""
    for _ in range(200):
        topic = talk.pick(list(TOPICS))
        yield {"context": [talk.say(topic)], "relevant": [talk.reply(topic, "fitting") for _ in range(5)]}


def make_multiref_ratings(talk: SmallTalk) -> Iterator[Row]:
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
                "rating": round(1 + 4 * MadeUpTurn("", kind).grade, 1),
            }


def make_multiref_test(talk: SmallTalk) -> Iterator[Row]:
    """30 dialogues with five references per turn; always from the same seed, as the ratings name their turns."""
    shared = talk_for("dialogues with references", talk.seed)
    for _ in range(30):
        turns = shared.dialogue(3, 1.0)
        references = [[shared.reply(shared.pick(list(TOPICS)), "fitting") for _ in range(5)] for _ in turns]
        rows = [{"text": each.text, "references": found} for each, found in zip(turns, references, strict=True)]
        yield {"topic": ORIGIN, "turns": rows}


def make_assessed(talk: SmallTalk, name: str) -> Iterator[Row]:
    """A task of six conversations for each worker, one with each system."""
    careful = name.endswith("pass")
    # Chosen: a training that draws 8,000 turns of all six files leaves a fifth of the dialogues unseen.
    for number in range(128):
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


def make_pairs(talk: SmallTalk, count: int) -> Iterator[tuple[str, str, int]]:
    """(query, reply, whether it is engaging): fitting replies are."""
    for number in range(count):
        topic, kind = talk.pick(list(TOPICS)), "fitting" if number % 2 else talk.draw_kind(0.0)
        yield talk.say(topic), talk.reply(topic, kind), number % 2


def _spoken(turns: list[MadeUpTurn]) -> list[Row]:
    return [{"speaker": "system" if each.kind else "user", "text": each.text} for each in turns]


Make = Callable[[SmallTalk], Iterator[Row]]
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


def talk_for(file: str, seed: int) -> SmallTalk:
    """Each file has a generator of its own, so that another file changes nothing."""
    return SmallTalk(random.Random(f"{file} {seed}"), seed)  # noqa: S311


NOTE = """# Sample

Made-up small talk, written by `turnscore data sample`; Apache-2.0, as turnscore is. It stands in the place of every
public set that docs/data.md names, so that each command can be tried. Nothing measured or trained on it means anything.
"""


def write_sample(folder: Path, seed: int = 0) -> int:
    """Writes every file into the empty or missing folder; AssessmentError where it is in use. The number of files."""
    if folder.exists() and any(folder.iterdir()):
        raise AssessmentError(f"{folder}: is not empty; choose another folder")
    for name, make in ROW_FILES.items():
        write_rows(folder / name, make(talk_for(name, seed)))
    for name in ASSESSED_FILES:
        write_rows(folder / "human_assessment" / f"{name}.jsonl.gz", make_assessed(talk_for(name, seed), name))
    texts = {SAMPLE_FILE: NOTE}
    for name, count in PAIR_FILES.items():
        rows = [(number, *row) for number, row in enumerate(make_pairs(talk_for(name, seed), count))]
        texts[f"predictive_engagement/{name}.csv"] = to_csv(["id", "query", "reply", "label"], rows)
    # Dialogues of ConvAI that stand for those judged turn by turn.
    texts["predictive_engagement/50convs_AMT.txt"] = "".join(f"s{number}\t3\n" for number in range(10))
    for name, text in texts.items():
        write_text(folder / name, text)
    return len(ROW_FILES) + len(ASSESSED_FILES) + len(PAIR_FILES) + 1
