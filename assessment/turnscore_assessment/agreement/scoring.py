"""Dialogues with people's judgements of turns or of the whole, and scorers' scores: by a service, or by bundles here.

docs/agreement.md describes the form.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from turnscore_client import DialogueReply, TurnScoreError
from turnscore_client._async import AsyncCalls
from turnscore_client._files.runs import Url
from turnscore_core.engine import Engine
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_models.manifest import BundleError
from turnscore_models.store import resolve
from turnscore_wire import DialogueAggregate, Limits, ModelDescription, Turn
from typer import Argument, Option

from turnscore_assessment import command_line
from turnscore_assessment.errors import AgreementError, BadFileError
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.files import check_row, read_rows

Quality = Annotated[float, Field(allow_inf_nan=False)]

# Values of no breakdown, a possible one, a breakdown: a turn's quality is the mean over annotators. Specified.
BREAKDOWN_WEIGHTS = {"O": 1.0, "T": 0.5, "X": 0.0}


def _check_votes(votes: dict[str, int]) -> dict[str, int]:
    if set(votes) != set(BREAKDOWN_WEIGHTS) or not any(votes.values()):
        raise ValueError("must have O, T and X, one above 0")
    return votes


Votes = Annotated[dict[str, Annotated[int, Field(strict=True, ge=0)]], AfterValidator(_check_votes)]


class JudgedTurn(Turn):
    """A turn; `quality` is people's judgement of it, on any scale that rises with quality.

    The Dialogue Breakdown Detection Challenge 3 has votes in its place.
    """

    model_config = ConfigDict(extra="ignore")

    quality: Quality | None = None
    breakdown_votes: Votes | None = None

    @property
    def judgement(self) -> float | None:
        """The quality, or where there is none the votes' mean."""
        if self.quality is not None or self.breakdown_votes is None:
            return self.quality
        votes = self.breakdown_votes
        return sum(BREAKDOWN_WEIGHTS[name] * count for name, count in votes.items()) / sum(votes.values())


class JudgedDialogue(BaseModel):
    """A dialogue, oldest turn first; `quality` is people's judgement of the whole."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    id: Annotated[str, Field(min_length=1)]
    system: Annotated[str, Field(min_length=1)] | None = None
    turns: Annotated[list[JudgedTurn], Field(min_length=1)]
    quality: Quality | None = None

    @property
    def system_places(self) -> list[int]:
        """The places of the turns that are scored."""
        return [place for place, turn in enumerate(self.turns) if turn.speaker == "system"]

    @property
    def is_judged(self) -> bool:
        """Whether people judged the dialogue or a turn of it."""
        return self.quality is not None or bool(self.turn_qualities)

    @property
    def turn_qualities(self) -> dict[int, float]:
        """The judged turns' qualities by their place."""
        return {place: found for place, turn in enumerate(self.turns) if (found := turn.judgement) is not None}


def drop_empty_turns(dialogue: JudgedDialogue) -> JudgedDialogue:
    """The dialogue without the system turns that have no text: the service scores none."""
    kept = [turn for turn in dialogue.turns if turn.speaker == "user" or turn.text.strip()]
    return dialogue.model_copy(update={"turns": kept})


def read_judged_dialogues(path: Path) -> list[JudgedDialogue]:
    """The dialogues of a `.jsonl` or `.jsonl.gz` file. BadFileError names the file, the line and the field."""
    dialogues: dict[str, JudgedDialogue] = {}
    for row, record in read_rows(path):
        dialogue = _build_dialogue(record, path, row)
        if dialogue.id in dialogues:
            raise BadFileError(path, row, f"id: {dialogue.id!r} was already used; give each dialogue its own")
        dialogues[dialogue.id] = dialogue
    if not dialogues:
        raise BadFileError(path, 0, "has no dialogue")
    return list(dialogues.values())


def _build_dialogue(record: dict[str, Any], path: Path, row: int) -> JudgedDialogue:
    dialogue = check_row(JudgedDialogue.model_validate, path, row, record)
    if not drop_empty_turns(dialogue).system_places:
        raise BadFileError(path, row, "turns: there is no system turn to score")
    for place, turn in enumerate(dialogue.turns):
        if turn.speaker == "user" and turn.judgement is not None:
            raise BadFileError(path, row, f"turns.{place}.quality: only system turns are judged")
    return dialogue


VALUE = "value"  # The part of a score that is its value; the other parts are its details.


@dataclass(frozen=True)
class DialogueScores:
    """One scorer's scores of one dialogue."""

    turns: Mapping[int, Mapping[str, float]]  # `value` and details by the system turn's place.
    dialogue: Mapping[str, float]  # Their means over the turns that count; a part without such a turn is left out.


@dataclass(frozen=True)
class ScoredFile:
    """One scorer's scores of every dialogue, in the file's order."""

    scorer: str
    model: str
    digest: str
    graph: str
    dialogues: Sequence[DialogueScores]

    @property
    def parts(self) -> list[str]:
        found = {part for dialogue in self.dialogues for parts in dialogue.turns.values() for part in parts}
        return [VALUE, *sorted(found - {VALUE})]

    def name_of(self, part: str) -> str:
        return self.scorer if part == VALUE else f"{self.scorer}: {part}"


def average_parts(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each part that all turns have."""
    shared = set.intersection(*(set(turn) for turn in turns)) if turns else set()
    return {part: sum(turn[part] for turn in turns) / len(turns) for part in sorted(shared)}


_LIMITS = Limits(max_text_chars=10**9, max_turns=10**6)  # Here no caller has to be bounded.


def load_bundles(references: Sequence[str]) -> dict[str, LoadedScorer]:
    """The scorers of the bundles by kind; AgreementError where one is refused or two are of one kind.

    A reference is a folder (with a `/`), a name in the model store, or a starter bundle's name.
    """
    scorers: dict[str, LoadedScorer] = {}
    for reference in references:
        try:
            bundle = resolve(reference)
            loaded = load_scorer(bundle, choose_variant(bundle), threads=usable_cpus())
        except BundleError as error:
            raise AgreementError(str(error)) from error
        if loaded.name in scorers:
            raise AgreementError(f"two bundles are of kind {loaded.name}; give one a kind")
        scorers[loaded.name] = loaded
    return scorers


# How far two sums of the same float64 values may differ. Chosen: far above rounding, far below any score.
_RELATIVE_ROUNDING = 1e-9


async def score_with_client(
    client: AsyncCalls,
    scorers: Sequence[str],
    dialogues: Sequence[JudgedDialogue],
    concurrency: int,
    advance: command_line.Advance,
) -> list[ScoredFile]:
    """Each scorer's scores of every system turn, at most `concurrency` dialogues in flight.

    Raises AgreementError where a scorer is not loaded, or the service or engine fails on a dialogue or answers it by
    another version, as one that splits conversations does; the message names the dialogue.
    """
    try:
        loaded = (await client.models()).models
    except TurnScoreError as error:
        raise AgreementError(f"the service does not answer: {error}") from error
    known = {model.scorer: model for model in loaded}
    for name in scorers:
        if name not in known:
            raise AgreementError(f"no scorer {name!r} is loaded; loaded: {', '.join(known)}")
    models = {name: known[name] for name in scorers}

    async def score(dialogue: JudgedDialogue) -> DialogueReply:
        try:
            reply = await client.score_dialogue(_turns_of(dialogue), scorers=list(models))
        except TurnScoreError as error:
            raise AgreementError(f"dialogue {dialogue.id!r}: {error}") from error
        _check_reply(dialogue, reply, models)
        advance(1)
        return reply

    return _read_replies(models, await command_line.ask_all(score, dialogues, concurrency))


def open_engine(references: Sequence[str]) -> Engine:
    """An engine of these bundles on all CPUs; AgreementError where one is refused or two are of one kind.

    A reference is a folder (with a `/`), a name in the model store, or a starter bundle's name.
    """
    try:
        return Engine(references, threads=usable_cpus(), limits=_LIMITS)
    except BundleError as error:
        raise AgreementError(str(error)) from error


def _turns_of(dialogue: JudgedDialogue) -> list[Turn]:
    return [Turn(speaker=turn.speaker, text=turn.text) for turn in dialogue.turns]


def _check_reply(dialogue: JudgedDialogue, reply: DialogueReply, models: Mapping[str, ModelDescription]) -> None:
    for turn in reply.turns:
        for name, failure in turn.errors.items():
            raise AgreementError(f"dialogue {dialogue.id!r}, turn {turn.index}: {name}: {failure.message}")
        for name, score in turn.scores.items():
            if score.model != models[name].model:
                raise AgreementError(
                    f"dialogue {dialogue.id!r}, turn {turn.index}: answered by {score.model}, not by "
                    f"{models[name].model}: the service must neither split nor change its versions"
                )


def _read_replies(models: Mapping[str, ModelDescription], replies: Sequence[DialogueReply]) -> list[ScoredFile]:
    return [
        ScoredFile(name, model.model, model.digest, model.graph, [_read_scores(name, reply) for reply in replies])
        for name, model in models.items()
    ]


def _read_scores(scorer: str, reply: DialogueReply) -> DialogueScores:
    turns = {
        turn.index: {VALUE: turn.scores[scorer].value, **turn.scores[scorer].details}
        for turn in sorted(reply.turns, key=lambda turn: turn.index)
    }
    aggregate = reply.dialogue.get(scorer)
    if aggregate is None:
        return DialogueScores(turns, {})
    return DialogueScores(turns, {**_average_counted(list(turns.values()), aggregate), VALUE: aggregate.mean})


def _average_counted(turns: Sequence[Mapping[str, float]], aggregate: DialogueAggregate) -> dict[str, float]:
    """The means of the details over the turns that count; empty where the reply does not show which these are.

    The reply has their number and the mean of their values. Only turns before the user's first do not count, so the
    last ones are taken, if their mean is the reply's.
    """
    means = average_parts(turns[len(turns) - aggregate.turns :])
    is_consistent = math.isclose(means[VALUE], aggregate.mean, rel_tol=_RELATIVE_ROUNDING, abs_tol=_RELATIVE_ROUNDING)
    return means if is_consistent else {}


@dataclass(frozen=True, kw_only=True)
class ScorerOptions:
    """Who scores, and which parts of the scores count; options of commands."""

    scorers: Annotated[list[str] | None, Option("--scorer", help="A scorer to ask; repeatable.")] = None
    parts: Annotated[list[str] | None, Option("--part", help="A detail in place of the `value`; repeatable.")] = None
    bundles: Annotated[
        list[str] | None,
        Option("--bundle", help="Instead of a service: a bundle's folder (with a /) or name; repeatable."),
    ] = None
    url: Url = None
    concurrency: Annotated[int, Option(min=1, help="Concurrent dialogues at the service.")] = (
        command_line.CALLS_IN_FLIGHT
    )
    timeout: Annotated[float, Option(help="Seconds for one dialogue, retries included.")] = command_line.CALL_SECONDS

    def __post_init__(self) -> None:
        if self.bundles and self.url is not None:
            raise typer.BadParameter("give either --url or --bundle")

    @property
    def words(self) -> list[str]:
        """The options as a command has them, with names in place of local paths."""
        options = [("--scorer", name) for name in self.scorers or ()]
        options += [("--part", name) for name in self.parts or ()]
        options += [("--bundle", Path(name).name) for name in self.bundles or ()]
        return [word for option in options for word in option]


@dataclass(frozen=True, kw_only=True)
class AgreementOptions(ScorerOptions):
    """Correlate scores, and trivial baselines, with people's judgements of the same turns."""

    file: Annotated[Path, Argument(exists=True, dir_okay=False, help="JSON lines; .gz is unpacked.")]
    # Without a value that of the class above would be its default.
    scorers: Annotated[list[str], Option("--scorer", help="A scorer to measure; repeatable.")] = field()
    output: Annotated[Path, Option(file_okay=False, help="Folder for the figures.")] = Path("build/agreement")
    level: Annotated[Literal["turn", "dialogue", "both"], Option(help="`both`: those with judgements.")] = "both"
    rounds: command_line.RoundsOption = ROUNDS
    seed: command_line.SeedOption = 0


def score_dialogues(choice: ScorerOptions, dialogues: Sequence[JudgedDialogue]) -> list[ScoredFile]:
    """Each scorer's scores of the dialogues. AgreementError for a missing scorer, or one that fails on a dialogue."""
    return asyncio.run(_score(choice, list(dict.fromkeys(choice.scorers or ())), dialogues))


async def _score(choice: ScorerOptions, names: Sequence[str], dialogues: Sequence[JudgedDialogue]) -> list[ScoredFile]:
    if choice.bundles:
        opened, at_once = command_line.client_over(open_engine(choice.bundles)), command_line.ENGINE_DIALOGUES_AT_ONCE
    else:
        opened, at_once = command_line.client_of(choice.url, choice.timeout), choice.concurrency
    async with opened as client:
        with command_line.show_progress(", ".join(names), len(dialogues)) as advance:
            return await score_with_client(client, names, dialogues, at_once, advance)
