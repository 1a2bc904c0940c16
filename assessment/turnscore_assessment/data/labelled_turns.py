"""Turns judged by people, read from a data folder, and the rules that split them by dialogue."""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from turnscore_assessment.data.dialogues import SYSTEM, USER, Spoken, merge_turns, read_dialogues
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import read_rows

FIT_SHARE = 60
"""Percent of the groups of dialogues that models are fitted on. Chosen."""
SHARED_WORDS = 5
"""Rows whose contexts share a text of so many words count as one dialogue's. Chosen."""
DAILYDIALOG = "dailydialog-zhao"
"""The set whose texts are DailyDialog's: licensed for non-commercial use, so nothing that ships is fitted on it."""
THUMBS_SET = "convai-thumbs"
GOOD_FROM = 3.5
"""Least rating, from 1 to 5, of a turn that people call good. Chosen: nearer to 4 than to 3."""
_WORD = re.compile(r"[a-z0-9]+")


FIT, CHOOSE = "fit", "choose"
"""Splits of rated turns: those that models are fitted on, and those that they are chosen on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledTurn:
    """A response in its context with what is known of it, on each set's own scale; unknown labels are absent."""

    context: tuple[Spoken, ...]
    """Speakers and texts, oldest first."""
    response: str
    labels: Mapping[str, float] = field(default_factory=dict)
    """`rating`: people's mean rating. `goes_on`: 1 where the user went on, 0 where the user stopped. Judged responses
    have their marks, judged user turns `satisfaction` and their signals."""
    next_user: str | None = None
    """What the user said next; None where no user turn follows."""
    set_name: str = ""
    system: str = ""
    dialogue: str = ""
    split: str = ""

    @property
    def rating(self) -> float:
        return self.labels["rating"]

    @property
    def goes_on(self) -> bool | None:
        """None where the set does not show it, or the user had said goodbye before the response."""
        known = self.labels.get("goes_on")
        return None if known is None else bool(known)

    @property
    def is_fitted_on(self) -> bool:
        return self.split == FIT


def read_rated_turns(path: Path) -> list[LabelledTurn]:
    """The rows of `turn_ratings.jsonl.gz`, split; the last text of a context is the user's."""
    rows = list(read_rows(path))
    for number, row in rows:
        if not isinstance(row.get("response"), str) or not isinstance(row.get("rating"), int | float):
            raise BadFileError(path, number, "lacks a string `response` or a number `rating`")
    contexts = [[text for text in row["context"] if text.strip()] for _, row in rows]
    groups = group_contexts(contexts)
    return [
        LabelledTurn(
            set_name=row["set"],
            system=str(row.get("system") or ""),
            dialogue=group,
            context=alternate(context),
            response=row["response"],
            labels={"rating": float(row["rating"])},
            split=choose_split(group),
        )
        for (_, row), context, group in zip(rows, contexts, groups, strict=True)
        if row["response"].strip()
    ]


def read_dbdc3(path: Path) -> list[LabelledTurn]:
    """The judged system turns of DBDC3: quality (O + T/2) over all votes. Chosen on, never fitted on."""
    turns = []
    for _, row in read_rows(path):
        spoken: list[Spoken] = []
        for turn in row["turns"]:
            votes = turn.get("breakdown_votes")
            if turn["speaker"] == SYSTEM and votes and turn["text"].strip():
                turns.append(
                    LabelledTurn(
                        set_name="dbdc3",
                        system=row["system"],
                        dialogue=row["id"],
                        context=tuple(spoken),
                        response=turn["text"],
                        labels={"rating": (votes["O"] + votes["T"] / 2) / sum(votes.values())},
                    )
                )
            if turn["text"].strip():
                spoken.append((turn["speaker"], turn["text"]))
    return turns


def read_thumbs(path: Path) -> list[LabelledTurn]:
    """ConvAI's voted turns of systems talking to people: 1 for a thumb up, 0 for one down."""
    turns = []
    for dialogue in read_dialogues(path):
        if sorted(dialogue.participants.values()) != ["bot", "human"]:
            continue
        bot = next(name for name, kind in dialogue.participants.items() if kind == "bot")
        merged = [turn for turn in merge_turns(dialogue.turns) if turn.text.strip()]
        for place, turn in enumerate(merged):
            if turn.speaker == bot and turn.thumb and place:
                context = tuple((SYSTEM if each.speaker == bot else USER, each.text) for each in merged[:place])
                turns.append(
                    LabelledTurn(
                        set_name=THUMBS_SET,
                        system="",
                        dialogue=dialogue.id,
                        context=context,
                        response=turn.text,
                        labels={"rating": float(turn.thumb == 2)},
                        split=choose_split(dialogue.id),
                    )
                )
    return turns


def alternate(texts: Sequence[str]) -> tuple[Spoken, ...]:
    """The texts as spoken by user and system in turns, the last one by the user."""
    return tuple((USER if (len(texts) - 1 - place) % 2 == 0 else SYSTEM, text) for place, text in enumerate(texts))


def choose_split(dialogue: str) -> str:
    """The committed rule: by the dialogue's name alone, the same on every machine."""
    return FIT if hashlib.sha256(dialogue.encode()).digest()[0] * 100 < FIT_SHARE * 256 else CHOOSE


def group_contexts(contexts: Sequence[Sequence[str]]) -> list[str]:
    """A name for each context; contexts that share a text of at least SHARED_WORDS words have the same name.

    The name is the least of the normalized texts that link the group, so that it does not depend on the order of rows.
    """
    parents: dict[str, str] = {}

    def find(key: str) -> str:
        while parents[key] != key:
            parents[key] = parents[parents[key]]
            key = parents[key]
        return key

    keys_of = [_link_keys(context) for context in contexts]
    for keys in keys_of:
        for key in keys:
            parents.setdefault(key, key)
        roots = sorted({find(key) for key in keys})
        for other in roots[1:]:
            parents[other] = roots[0]
    return [find(keys[0]) for keys in keys_of]


def _link_keys(context: Iterable[str]) -> list[str]:
    normalized = [" ".join(_WORD.findall(text.lower())) for text in context]
    long = [text for text in normalized if len(text.split()) >= SHARED_WORDS]
    return long or [" | ".join(normalized)]


TURNS_FILE, MODERN_FILE, USER_TURNS_FILE = (
    "judged_turns.jsonl.gz",
    "judged_modern.jsonl.gz",
    "judged_user_turns.jsonl.gz",
)
MARKS = ("relevant", "fluent", "engaging", "overall")
"""What a response is marked for, 1 to 5; the files call `fluent` `sound`."""
LIVE_SETS = ("dstc9", "convai", "human_assessment")
"""Of the judged sets, those of chatbots' turns as they were said."""
UNKNOWN = math.nan

Part = Literal["train", "choose", "calibrate", "report"]
_CHOOSE, _CALIBRATE = 0.3, 0.6
"""Of the judged dialogues that are not trained on, the share below which a hash chooses, and calibrates."""


JudgedContext = Sequence[LabelledTurn]
"""Every judged response to one context, its labels its marks as 0 to 1: 1 of 5 is 0, 5 of 5 is 1."""


def part_of(dialogue: str, split: str) -> Part:
    """Which part a dialogue belongs to: what was not trained on is split by the SHA-256 of the dialogue's name."""
    if split == "train":
        return "train"
    place = int.from_bytes(hashlib.sha256(f"quality 2: {dialogue}".encode()).digest()[:4], "big") / 2**32
    return "choose" if place < _CHOOSE else "calibrate" if place < _CALIBRATE else "report"


def scale_mark(mark: float) -> float:
    """A mark from 1 to 5 as 0 to 1."""
    return (float(mark) - 1) / 4


def read_judged_contexts(path: Path) -> Iterator[JudgedContext]:
    """The rows of a file of judged responses, `system` telling how each was made; turns without text are left out."""
    for _, row in read_rows(path):
        context, part = _read_turns(row["context"]), part_of(row["dialogue"], row["split"])
        yield [
            LabelledTurn(
                set_name=row["set"],
                dialogue=row["dialogue"],
                split=part,
                context=context,
                response=each["text"],
                system=each.get("made", ""),
                labels={
                    name: scale_mark(each[key])
                    for name, key in zip(MARKS, ("relevant", "sound", "engaging", "overall"), strict=True)
                },
            )
            for each in row["responses"]
            if each["text"].strip()
        ]


def read_judged_user_turns(path: Path) -> Iterator[LabelledTurn]:
    """The rows of a file of judged user turns: labels are `satisfaction` from 0 to 1, and a 1 for each signal shown."""
    for _, row in read_rows(path):
        *context, (_, text) = _read_turns(row["turns"])
        yield LabelledTurn(
            set_name=row["set"],
            dialogue=row["dialogue"],
            split=part_of(row["dialogue"], row["split"]),
            context=tuple(context),
            response=text,
            labels={"satisfaction": scale_mark(row["satisfaction"]), **dict.fromkeys(row["signals"], 1.0)},
        )


def _read_turns(turns: Sequence[Mapping[str, Any]]) -> tuple[Spoken, ...]:
    return tuple((each["speaker"], each["text"]) for each in turns if each["text"].strip())


def read_judged_turns(folder: Path, parts: Sequence[Part]) -> list[LabelledTurn]:
    """The judged responses of these parts as rated turns, their overall mark from 1 to 5 as the rating.

    Live turns of chatbots, real responses with made-up ones, and modern ones are sets of their own.
    """
    turns = []
    for name in (TURNS_FILE, MODERN_FILE):
        if not (folder / name).exists():
            continue
        for each in chain.from_iterable(read_judged_contexts(folder / name)):
            if each.split not in parts:
                continue
            live = each.set_name in LIVE_SETS
            named = "judged-modern" if name == MODERN_FILE else "judged-live" if live else "judged-made"
            rating = 1 + 4 * each.labels["overall"]
            turns.append(replace(each, set_name=named, system=each.set_name, split="", labels={"rating": rating}))
    return turns


RATINGS_FILE, THUMBS_FILE = "turn_ratings.jsonl.gz", "convai2017.jsonl.gz"
DBDC3_FILE, ADVERSARIAL_FILE = "dbdc3_dev.jsonl.gz", "adversarial_responses.jsonl.gz"
ADVERSARIAL_KINDS = ("relevant", "random", "adversarial")


def read_development_sets(folder: Path) -> dict[str, list[LabelledTurn]]:
    """The rated turns by set, those fitted on apart, DBDC3's development turns, and ConvAI's thumbs."""
    found: dict[str, list[LabelledTurn]] = {}
    if (folder / RATINGS_FILE).exists():
        for turn in read_rated_turns(folder / RATINGS_FILE):
            found.setdefault(f"{turn.set_name} ({_part(turn)})", []).append(turn)
    if (folder / THUMBS_FILE).exists():
        for turn in read_thumbs(folder / THUMBS_FILE):
            found.setdefault(f"{turn.set_name} ({_part(turn)})", []).append(turn)
    if (folder / DBDC3_FILE).exists():
        found["dbdc3"] = read_dbdc3(folder / DBDC3_FILE)
    return found


def _part(turn: LabelledTurn) -> str:
    return "fitted on" if turn.is_fitted_on else "chosen on"
