"""Scores of judged dialogues from bundles, without a server: the turns, batches and means are the service's."""

from collections.abc import Sequence

from turnscore_core.batches import Answer
from turnscore_core.errors import ScoringError
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import score_groups
from turnscore_models import BundleError
from turnscore_models.store import resolve
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


def make_turn(context: Sequence[Spoken], response: str) -> TurnToScore:
    """The turn as a caller would send it."""
    return TurnToScore([Turn.model_validate({"speaker": who, "text": text}) for who, text in context], response)


def _score_chunk(loaded: LoadedScorer, dialogues: Sequence[JudgedDialogue]) -> list[DialogueScores]:
    options = loaded.scorer.read_options({})
    groups = [
        [
            loaded.trim(TurnToScore(dialogue.turns[:at], dialogue.turns[at].text, options=options))
            for at in dialogue.system_places
        ]
        for dialogue in dialogues
    ]
    answers = score_groups(loaded, groups)
    return [_collect(loaded, *each) for each in zip(dialogues, groups, answers, strict=True)]


def _collect(
    loaded: LoadedScorer, dialogue: JudgedDialogue, turns: Sequence[TurnToScore], answers: Sequence[Answer]
) -> DialogueScores:
    """One dialogue's scores."""
    parts: dict[int, dict[str, float]] = {}
    counted: list[dict[str, float]] = []
    for place, turn, answer in zip(dialogue.system_places, turns, answers, strict=True):
        if isinstance(answer, ScoringError):
            raise AgreementError(f"dialogue {dialogue.id!r}, turn {place}: {answer.message}")
        parts[place] = {VALUE: answer.value, **answer.details}
        if loaded.scorer.counts_in_dialogue(turn):
            counted.append(parts[place])
    return DialogueScores(parts, average_parts(counted))
