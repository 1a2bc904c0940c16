"""Turns to learn from: what people said to each other and to systems, and what systems said to people. Labels nothing.

Every turn is seen from its speaker's side: in `context` the speaker is `system` and the other side `user`, so that a
person's turn and a system's turn look alike to the model. `system`, PERSON or BOT, keeps them apart for the labels.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.data import dialogues
from turnscore_assessment.data.dialogues import LabelledTurn, RecordedDialogue

CONTEXT_TURNS = 4  # Of a turn's context this many latest turns are kept; the model reads no more.
PERSON, BOT = "person", "bot"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSource:
    """One set of dialogues: who its speakers are, whether its ends mean a stop, and how many turns are drawn."""

    name: str
    files: tuple[str, ...]
    source: str = ""  # Only rows with this `source`.
    stops_observed: bool = False
    left_out_systems: tuple[str, ...] = ()
    person_turns: int = 0  # Turns of people that are drawn, as examples of a fitting response.
    bot_turns: int = 0  # Turns of systems that are drawn, for what the user said next.


HUMAN_ASSESSMENT = tuple(
    f"human_assessment/{run}_{outcome}.jsonl.gz"
    for run in ("free_run1", "free_run2", "icebreaker")
    for outcome in ("pass", "fail")
)
DIALOGUE_TEXT = ("dialogue_text.jsonl.gz",)

# Chosen: everyday talk first. Numbers of turns fit a run of an hour and a half on one core.
SOURCES: tuple[TurnSource, ...] = (
    TurnSource(name="persona", files=DIALOGUE_TEXT, source="synthetic_persona_chat", person_turns=26_000),
    TurnSource(name="topical", files=DIALOGUE_TEXT, source="topical_chat", person_turns=20_000),
    TurnSource(name="sgd", files=DIALOGUE_TEXT, source="sgd", person_turns=9_000),
    TurnSource(
        name="dstc9", files=("dstc9_interactive.jsonl.gz",), stops_observed=True, person_turns=12_000, bot_turns=26_000
    ),
    TurnSource(
        name="convai", files=("convai2017.jsonl.gz",), stops_observed=True, person_turns=8_000, bot_turns=10_000
    ),
    TurnSource(
        name="assessment",
        files=HUMAN_ASSESSMENT,
        left_out_systems=("QualityControl",),
        person_turns=9_000,
        bot_turns=10_000,
    ),
)


def read_source(folder: Path, source: TurnSource, seed: int = 0) -> list[LabelledTurn]:
    """The drawn turns of one set, people's before systems'; BadFileError where a file is missing or broken."""
    turns = [
        turn
        for file in source.files
        for dialogue in dialogues.read_dialogues(folder / file)
        if (not source.source or dialogue.source == source.source) and dialogue.system not in source.left_out_systems
        for turn in observe_dialogue(source, dialogue, file)
    ]
    generator = random.Random(f"{source.name} {seed}")  # noqa: S311
    people, bots = ([turn for turn in turns if turn.system == kind] for kind in (PERSON, BOT))
    drawn = generator.sample(people, min(source.person_turns, len(people)))
    return drawn + generator.sample(bots, min(source.bot_turns, len(bots)))


def observe_dialogue(source: TurnSource, dialogue: RecordedDialogue, file: str = "") -> Iterator[LabelledTurn]:
    """Every turn with a text and a context before it."""
    turns = [turn for turn in dialogues.merge_turns(dialogue.turns) if turn.text.strip()]
    kinds = _kinds_of_speakers(dialogue)
    for place in range(1, len(turns)):
        speaker = turns[place].speaker
        before = turns[max(0, place - CONTEXT_TURNS) : place]
        following = turns[place + 1].text if place + 1 < len(turns) else None
        kind = kinds.get(speaker, PERSON)
        yield LabelledTurn(
            system=kind,
            dialogue=f"{file} {dialogue.id} {dialogue.order}",
            place=place,
            context=tuple(
                (dialogues.SYSTEM if turn.speaker == speaker else dialogues.USER, turn.text) for turn in before
            ),
            response=turns[place].text,
            next_user=following,
            labels=_label_going_on(source, kind, before[-1].text, following),
        )


def _kinds_of_speakers(dialogue: RecordedDialogue) -> dict[str, str]:
    if dialogue.participants:
        return {name: BOT if kind == "bot" else PERSON for name, kind in dialogue.participants.items()}
    return {dialogues.USER: PERSON, dialogues.SYSTEM: BOT}


def _label_going_on(source: TurnSource, kind: str, before: str, following: str | None) -> dict[str, float]:
    """No label where the set does not say whether the end was the other side's choice."""
    if following is not None:
        return {"goes_on": 1.0} if kind == PERSON or source.stops_observed else {}
    is_choice = kind == BOT and source.stops_observed and not dialogues.says_goodbye(before)
    return {"goes_on": 0.0} if is_choice else {}
