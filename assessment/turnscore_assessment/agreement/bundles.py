"""Scores of judged dialogues from bundles, without a server: the turns, batches and means are the service's."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.scorer import RawScore, TokenPack, TurnToScore
from turnscore_models import Bundle, BundleError
from turnscore_wire import Turn

from turnscore_assessment.agreement.judged_dialogues import (
    VALUE,
    Advance,
    DialogueScores,
    JudgedDialogue,
    ScoredFile,
    average_parts,
)
from turnscore_assessment.data.dialogues import Spoken
from turnscore_assessment.errors import AgreementError

DIALOGUES_AT_ONCE = 16
"""Dialogues whose turns are sorted into batches together. Chosen: enough of like length, and progress shows."""

TURNS_AT_ONCE = 512
"""Independent turns that are sorted into batches together. Chosen likewise."""

MAX_BATCH_TOKENS = 4096
"""Tokens in one batch, padding included: the service's default."""


@dataclass(frozen=True)
class _PlacedPack:
    """A pack, and the indices of the turns that it answers."""

    pack: TokenPack
    answers: Sequence[int]


def load_bundles(references: Sequence[str]) -> dict[str, LoadedScorer]:
    """The scorers of the bundles by kind; AgreementError where one is refused or two are of one kind.

    A reference is a folder (with a `/`), a name in the model store, or a starter bundle's name.
    """
    scorers: dict[str, LoadedScorer] = {}
    for reference in references:
        try:
            bundle = _find_bundle(reference)
            loaded = load_scorer(bundle, choose_variant(bundle), threads=usable_cpus())
        except BundleError as error:
            raise AgreementError(str(error)) from error
        if loaded.name in scorers:
            raise AgreementError(f"two bundles are of kind {loaded.name}; give one a kind")
        scorers[loaded.name] = loaded
    return scorers


def score_with_bundle(loaded: LoadedScorer, dialogues: Sequence[JudgedDialogue], advance: Advance) -> ScoredFile:
    """The scorer's scores of every system turn. AgreementError naming the turn whose score is not a number."""
    scored: list[DialogueScores] = []
    for start in range(0, len(dialogues), DIALOGUES_AT_ONCE):
        chunk = dialogues[start : start + DIALOGUES_AT_ONCE]
        scored += _score_chunk(loaded, chunk)
        advance(len(chunk))
    manifest = loaded.bundle.manifest
    return ScoredFile(
        scorer=loaded.name,
        model=manifest.reference,
        digest=loaded.bundle.digest,
        graph=loaded.variant,
        dialogues=scored,
    )


def _find_bundle(reference: str) -> Bundle:
    # The store imports BentoML, which takes a second: only measuring a bundle needs it.
    from turnscore_models.store import resolve

    return resolve(reference)


def make_turn(context: Sequence[Spoken], response: str) -> TurnToScore:
    """The turn as a caller would send it."""
    return TurnToScore([Turn.model_validate({"speaker": who, "text": text}) for who, text in context], response)


def score_turns(loaded: LoadedScorer, turns: Sequence[TurnToScore]) -> list[RawScore]:
    """The scores of independent turns, in order, from batches of turns of like length."""
    raw: dict[int, RawScore] = {}
    for start in range(0, len(turns), TURNS_AT_ONCE):
        packs = loaded.scorer.encode([loaded.trim(turn) for turn in turns[start : start + TURNS_AT_ONCE]])
        raw.update(_score_packs(loaded, [_PlacedPack(pack, [start + each for each in pack.answers]) for pack in packs]))
    return [raw[place] for place in range(len(turns))]


def _score_packs(loaded: LoadedScorer, placed: Sequence[_PlacedPack]) -> dict[int, RawScore]:
    raw: dict[int, RawScore] = {}
    for batch in _form_batches(placed):
        scores = loaded.scorer.score([each.pack for each in batch])
        raw.update(zip([answer for each in batch for answer in each.answers], scores, strict=True))
    return raw


def _score_chunk(loaded: LoadedScorer, dialogues: Sequence[JudgedDialogue]) -> list[DialogueScores]:
    options = loaded.scorer.read_options({})
    placed: list[_PlacedPack] = []
    turns: list[TurnToScore] = []
    for dialogue in dialogues:
        own = [
            loaded.trim(TurnToScore(dialogue.turns[:at], dialogue.turns[at].text, options=options))
            for at in dialogue.system_places
        ]
        placed += [
            _PlacedPack(pack, [len(turns) + answer for answer in pack.answers]) for pack in loaded.scorer.encode(own)
        ]
        turns += own
    raw = _score_packs(loaded, placed)
    in_order = iter(range(len(turns)))
    return [_collect(loaded, dialogue, turns, raw, in_order) for dialogue in dialogues]


def _form_batches(placed: Sequence[_PlacedPack]) -> Iterator[list[_PlacedPack]]:
    """Packs of like length, within the budget unless one alone exceeds it."""
    batch: list[_PlacedPack] = []
    for each in sorted(placed, key=lambda each: each.pack.width):
        rows = sum(len(other.pack.rows) for other in batch) + len(each.pack.rows)
        if batch and rows * each.pack.width > MAX_BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch


def _collect(
    loaded: LoadedScorer,
    dialogue: JudgedDialogue,
    turns: Sequence[TurnToScore],
    raw: dict[int, RawScore],
    in_order: Iterator[int],
) -> DialogueScores:
    """One dialogue's scores; `in_order` holds the indices of the turns of all dialogues."""
    parts: dict[int, dict[str, float]] = {}
    counted: list[dict[str, float]] = []
    for place in dialogue.system_places:
        number = next(in_order)
        parts[place] = {VALUE: raw[number].value, **raw[number].details}
        if not all(map(math.isfinite, parts[place].values())):
            raise AgreementError(f"dialogue {dialogue.id!r}, turn {place}: {loaded.name} gave no number")
        if loaded.scorer.counts_in_dialogue(turns[number]):
            counted.append(parts[place])
    return DialogueScores(parts, average_parts(counted))
