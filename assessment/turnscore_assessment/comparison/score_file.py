"""Files of scores as `turnscore score` writes them, and the scoring of the dialogues in them that have no scores yet.

A line is a scored dialogue ({"turns": [{"scores"}]}, among turns without), a scored turn ({"scores"}; those with the
same `dialogue` belong together), a failed one ({"error"}), or a dialogue to be scored ({"turns": [{"speaker",
"text"}]}).
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from turnscore_client import TurnScoreError
from turnscore_wire import DialogueReply, Turn

from turnscore_assessment.command_line import CALLS_IN_FLIGHT, OpenClient, ask_all
from turnscore_assessment.errors import AssessmentError, BadFileError
from turnscore_assessment.files import check_row, read_rows

MOST_DIALOGUES = 100_000
"""Most dialogues in one file. Chosen: far above any study, and a few hundred MB of memory."""

LARGEST_SCORE = 1e100
"""Largest magnitude of a score. Chosen: squares and sums of such numbers are still numbers."""
MOST_TOKENS = 10**9
"""Most tokens of one turn. Chosen: far above what any model reads."""

Finite = Annotated[float, Field(ge=-LARGEST_SCORE, le=LARGEST_SCORE, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Tokens(BaseModel):
    used: Annotated[int, Field(ge=0, le=MOST_TOKENS)]


class _Score(BaseModel):
    value: Finite
    details: dict[str, Finite] = {}
    tokens: _Tokens | None = None


class _ScoredTurn(BaseModel):
    scores: dict[str, _Score]


def _scored_only(turns: object) -> object:
    """Of a dialogue that is kept with its texts, the turns that have scores."""
    if not isinstance(turns, list):
        return turns
    return [turn for turn in turns if not isinstance(turn, dict) or "scores" in turn]


class _ScoreLine(BaseModel):
    """The keys that are read; all others are ignored."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: Name | None = None
    words: Annotated[Finite, Field(ge=0)] | None = None


class _DialogueLine(_ScoreLine):
    turns: Annotated[list[_ScoredTurn], Field(min_length=1), BeforeValidator(_scored_only)]


class _TurnLine(_ScoreLine):
    dialogue: Name | None = None
    scores: dict[str, _Score]


class _UnscoredLine(_ScoreLine):
    turns: Annotated[list[Turn], Field(min_length=1)]


@dataclass(kw_only=True)
class ScoredDialogue:
    """A dialogue's scores: those of each system turn, by scorer; and what is known of its length."""

    name: str | None
    line: int
    scores: list[dict[str, _Score]]
    words: float | None = None
    """Mean words per system turn, where the text is known."""

    def values(self, *, with_details: bool) -> dict[str, float]:
        """The mean over its turns, by scorer, and by `scorer.detail` if asked for."""
        found: dict[str, list[float]] = {}
        for turn in self.scores:
            for scorer, score in turn.items():
                found.setdefault(scorer, []).append(score.value)
                for detail, value in score.details.items() if with_details else ():
                    found.setdefault(f"{scorer}.{detail}", []).append(value)
        return {name: float(np.mean(values)) for name, values in found.items()}

    def lengths(self, scorer: str) -> dict[str, float]:
        """The known lengths: `turns`, `tokens` that the scorer read per turn, `words` per turn."""
        read = [turn[scorer].tokens for turn in self.scores if scorer in turn]
        known = [tokens.used for tokens in read if tokens is not None]
        lengths = {"turns": float(len(self.scores))}
        if read and len(known) == len(read):
            lengths["tokens"] = float(np.mean(known))
        return lengths if self.words is None else {**lengths, "words": self.words}


@dataclass(frozen=True, kw_only=True)
class UnscoredDialogue:
    """A dialogue whose turns a service is still to score."""

    name: str | None
    line: int
    turns: list[Turn]

    @property
    def words(self) -> float:
        """Mean words per system turn."""
        return float(np.mean([len(turn.text.split()) for turn in self.turns if turn.speaker == "system"]))


@dataclass(kw_only=True)
class ScoreFile:
    """What a file holds. `failed` counts the lines that have an `error` in place of scores."""

    path: Path
    scored: list[ScoredDialogue] = field(default_factory=list)
    unscored: list[UnscoredDialogue] = field(default_factory=list)
    failed: int = 0


_Kind = Literal["dialogue", "turn", "unscored", "failed"]
_FORMS: dict[str, type[_ScoreLine]] = {"dialogue": _DialogueLine, "turn": _TurnLine, "unscored": _UnscoredLine}


def read_score_file(path: Path) -> ScoreFile:
    """The file's dialogues in its order; BadFileError names the file, the line and the field."""
    found = ScoreFile(path=path)
    groups: dict[str, ScoredDialogue] = {}
    names: set[str] = set()
    for number, fields in read_rows(path):
        kind = _find_kind(fields, path, number)
        if kind == "failed":
            found.failed += 1
            continue
        line: _ScoreLine = check_row(_FORMS[kind].model_validate, path, number, fields)
        if line.id is not None and line.id in names:
            raise BadFileError(path, number, f"id: {line.id!r} was already used")
        names |= {line.id} if line.id is not None else set()
        _add(found, groups, line, number)
        if len(found.scored) + len(found.unscored) > MOST_DIALOGUES:
            raise BadFileError(path, number, f"the file holds more than {MOST_DIALOGUES:,} dialogues")
    if not found.scored and not found.unscored:
        raise BadFileError(path, 0, "has no dialogue with scores or turns")
    return found


def _add(found: ScoreFile, groups: dict[str, ScoredDialogue], line: _ScoreLine, number: int) -> None:
    if isinstance(line, _UnscoredLine):
        if all(turn.speaker == "user" or not turn.text.strip() for turn in line.turns):
            raise BadFileError(found.path, number, "turns: there is no system turn to score")
        found.unscored.append(UnscoredDialogue(name=line.id, line=number, turns=line.turns))
    elif isinstance(line, _DialogueLine):
        scores = [turn.scores for turn in line.turns]
        found.scored.append(ScoredDialogue(name=line.id, line=number, scores=scores, words=line.words))
    elif isinstance(line, _TurnLine):
        if line.dialogue is not None and line.dialogue in groups:
            groups[line.dialogue].scores.append(line.scores)
            return
        dialogue = ScoredDialogue(name=line.dialogue or line.id, line=number, scores=[line.scores])
        if line.dialogue is not None:
            groups[line.dialogue] = dialogue
        found.scored.append(dialogue)


def _find_kind(fields: dict[str, Any], path: Path, number: int) -> _Kind:
    if "error" in fields:
        return "failed"
    if "scores" in fields:
        return "turn"
    turns = fields.get("turns")
    if not isinstance(turns, list) or not turns:
        raise BadFileError(path, number, "has neither `scores` nor `turns`")
    return "dialogue" if any(isinstance(turn, dict) and "scores" in turn for turn in turns) else "unscored"


def read_reply(reply: DialogueReply, asked: UnscoredDialogue) -> ScoredDialogue:
    """A service's reply for a dialogue, as if the file had held it."""
    scores = [_ScoredTurn.model_validate(turn, from_attributes=True).scores for turn in reply.turns]
    return ScoredDialogue(name=asked.name, line=asked.line, scores=scores, words=asked.words)


def pair_dialogues(a: ScoreFile, b: ScoreFile) -> Iterator[tuple[ScoredDialogue, ScoredDialogue]]:
    """Pairs of dialogues with the same name in both files, in the first file's order."""
    others = {dialogue.name: dialogue for dialogue in b.scored if dialogue.name is not None}
    for dialogue in a.scored:
        if dialogue.name is not None and dialogue.name in others:
            yield dialogue, others[dialogue.name]


class UnscoredError(AssessmentError):
    """The service did not score a dialogue; the message says which and why."""


def score_file(found: ScoreFile, open_client: OpenClient, scorers: Sequence[str] | None) -> None:
    """Moves the file's unscored dialogues to the scored ones, in the file's order. UnscoredError names the line."""
    if not found.unscored:
        return
    answered = asyncio.run(_score(found, open_client, scorers))
    found.scored = sorted([*found.scored, *answered], key=lambda dialogue: dialogue.line)
    found.unscored = []


async def _score(found: ScoreFile, open_client: OpenClient, scorers: Sequence[str] | None) -> list[ScoredDialogue]:
    async with open_client() as client:

        async def ask(dialogue: UnscoredDialogue) -> ScoredDialogue:
            spoken = [turn for turn in dialogue.turns if turn.speaker == "user" or turn.text.strip()]
            try:
                return read_reply(await client.score_dialogue(spoken, scorers=scorers), dialogue)
            except TurnScoreError as error:
                raise UnscoredError(f"{found.path}, line {dialogue.line}: {error}") from None

        return await ask_all(ask, found.unscored, CALLS_IN_FLIGHT)
