"""Turns judged by people, and the one rule that splits them into fitting and choosing."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.data.dialogue_sets import SYSTEM, USER, Spoken
from turnscore_assessment.data.dialogues import merge_turns, read_dialogues, read_rows
from turnscore_assessment.errors import BadDataError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedTurn:
    """A response in its context with people's mean rating, on its set's own scale."""

    set_name: str
    system: str
    dialogue: str
    context: tuple[Spoken, ...]
    response: str
    rating: float
    is_fitted_on: bool = False


def read_rated_turns(path: Path) -> list[RatedTurn]:
    """The rows of `turn_ratings.jsonl.gz`, split; the last text of a context is the user's."""
    rows = list(read_rows(path))
    for number, row in rows:
        if not isinstance(row.get("response"), str) or not isinstance(row.get("rating"), int | float):
            raise BadDataError(path, number, "lacks a string `response` or a number `rating`")
    contexts = [[text for text in row["context"] if text.strip()] for _, row in rows]
    groups = group_contexts(contexts)
    return [
        RatedTurn(
            set_name=row["set"],
            system=str(row.get("system") or ""),
            dialogue=group,
            context=alternate(context),
            response=row["response"],
            rating=float(row["rating"]),
            is_fitted_on=is_fitted_on(group),
        )
        for (_, row), context, group in zip(rows, contexts, groups, strict=True)
        if row["response"].strip()
    ]


def read_dbdc3(path: Path) -> list[RatedTurn]:
    """The judged system turns of DBDC3: quality (O + T/2) over all votes. Chosen on, never fitted on."""
    turns = []
    for _, row in read_rows(path):
        spoken: list[Spoken] = []
        for turn in row["turns"]:
            votes = turn.get("breakdown_votes")
            if turn["speaker"] == SYSTEM and votes and turn["text"].strip():
                turns.append(
                    RatedTurn(
                        set_name="dbdc3",
                        system=row["system"],
                        dialogue=row["id"],
                        context=tuple(spoken),
                        response=turn["text"],
                        rating=(votes["O"] + votes["T"] / 2) / sum(votes.values()),
                    )
                )
            if turn["text"].strip():
                spoken.append((turn["speaker"], turn["text"]))
    return turns


def read_thumbs(path: Path) -> list[RatedTurn]:
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
                    RatedTurn(
                        set_name=THUMBS_SET,
                        system="",
                        dialogue=dialogue.id,
                        context=context,
                        response=turn.text,
                        rating=float(turn.thumb == 2),
                        is_fitted_on=is_fitted_on(dialogue.id),
                    )
                )
    return turns


def alternate(texts: Sequence[str]) -> tuple[Spoken, ...]:
    """The texts as spoken by user and system in turns, the last one by the user."""
    return tuple((USER if (len(texts) - 1 - place) % 2 == 0 else SYSTEM, text) for place, text in enumerate(texts))


def is_fitted_on(dialogue: str) -> bool:
    """The committed rule: by the dialogue's name alone, the same on every machine."""
    return hashlib.sha256(dialogue.encode()).digest()[0] * 100 < FIT_SHARE * 256


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
