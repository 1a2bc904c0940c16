"""Scores of dialogues' texts: readability and coherence of every system turn, and of the dialogue. Writes no file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from turnscore_assessment.data.dialogues import SYSTEM, RecordedDialogue, Spoken
from turnscore_assessment.readability.coherence import (
    Coherence,
    DullPatterns,
    PenaltyForm,
    find_penalty,
    measure_coherence,
)
from turnscore_assessment.readability.flesch import Readability, add_up, measure_readability
from turnscore_assessment.references.vector_metrics import SentenceEncoder

DIALOGUES_AT_ONCE = 200
"""Dialogues whose texts are encoded together. Chosen: some 4,000 texts, 6 MB of vectors."""


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How texts are measured; without an encoder only coherence's penalty is known."""

    patterns: DullPatterns
    encoder: SentenceEncoder | None = None
    context_turns: int = 1
    form: PenaltyForm = "published"


@dataclass(frozen=True, kw_only=True)
class TurnTexts:
    index: int
    readability: Readability
    penalty: float
    coherence: Coherence | None
    """None without an encoder, or where nothing was said before."""


@dataclass(frozen=True, kw_only=True)
class DialogueReadability:
    line: int
    system: str
    turns: Sequence[TurnTexts]

    @property
    def readability(self) -> Readability:
        """The readability of all its system turns taken together."""
        return add_up(turn.readability for turn in self.turns)

    @property
    def columns(self) -> dict[str, float | None]:
        """Its numbers: reading ease of all turns together, the rest as means over turns; None for unknown ones."""
        known = [turn.coherence for turn in self.turns if turn.coherence is not None]
        return {
            "flesch": self.readability.score,
            "penalty": fmean(turn.penalty for turn in self.turns),
            "cosine": fmean(each.cosine for each in known) if known else None,
            "distance": fmean(each.distance for each in known) if known else None,
        }


def score_texts(dialogues: Sequence[RecordedDialogue], settings: TextSettings) -> Iterator[DialogueReadability]:
    """Every dialogue in which the system says something."""
    for start in range(0, len(dialogues), DIALOGUES_AT_ONCE):
        yield from _score_chunk(dialogues[start : start + DIALOGUES_AT_ONCE], settings)


def find_context(turns: Sequence[Spoken], place: int, count: int) -> str:
    """The texts of the last so many turns before, joined by blanks; turns without text do not count."""
    before = [text.strip() for _, text in turns[:place] if text.strip()]
    return " ".join(before[-count:])


def _score_chunk(dialogues: Sequence[RecordedDialogue], settings: TextSettings) -> Iterator[DialogueReadability]:
    places = [
        (number, place)
        for number, dialogue in enumerate(dialogues)
        for place, (speaker, text) in enumerate(dialogue.spoken)
        if speaker == SYSTEM and text.strip()
    ]
    coherence = _measure_coherence(dialogues, places, settings)
    turns: dict[int, list[TurnTexts]] = {}
    for number, place in places:
        text = dialogues[number].turns[place].text
        turns.setdefault(number, []).append(
            TurnTexts(
                index=place,
                readability=measure_readability(text),
                penalty=find_penalty(text, settings.patterns, settings.form),
                coherence=coherence.get((number, place)),
            )
        )
    for number, found in turns.items():
        yield DialogueReadability(line=dialogues[number].line, system=dialogues[number].system, turns=found)


def _measure_coherence(
    dialogues: Sequence[RecordedDialogue], places: Sequence[tuple[int, int]], settings: TextSettings
) -> dict[tuple[int, int], Coherence]:
    if settings.encoder is None:
        return {}
    contexts = {
        (number, place): find_context(dialogues[number].spoken, place, settings.context_turns)
        for number, place in places
    }
    answered = [key for key in places if contexts[key]]
    pairs = [(contexts[key], dialogues[key[0]].turns[key[1]].text) for key in answered]
    if not pairs:
        return {}
    return dict(
        zip(answered, measure_coherence(pairs, settings.encoder, settings.patterns, settings.form), strict=True)
    )
