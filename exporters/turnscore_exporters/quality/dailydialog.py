"""What descends from DailyDialog: contexts with several fitting responses, and adversarial ones. Never in what ships.

The texts are licensed for non-commercial use (CC BY-NC-SA 4.0). A model that learned from them is for comparison.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from turnscore_assessment.data.dialogue_sets import Spoken
from turnscore_assessment.data.dialogues import read_rows
from turnscore_assessment.data.rated_turns import DAILYDIALOG, alternate, group_contexts, read_rated_turns

from turnscore_exporters.quality.examples import Example, Group
from turnscore_exporters.quality.spoken_turns import CONTEXT_TURNS, SpokenTurn

SEVERAL_FILE, ADVERSARIAL_FILE, RATINGS_FILE = (
    "several_responses.jsonl.gz",
    "adversarial_responses.jsonl.gz",
    "turn_ratings.jsonl.gz",
)
TRAINED_SPLIT = "dev"
"""Of the adversarial responses; the other split is measured on."""
TURNS = 6_000
Texts = Sequence[str]


def read_dailydialog(folder: Path, seed: int = 0) -> tuple[list[SpokenTurn], list[Group]]:
    """Fitting responses as people's turns, and groups with adversarial responses beside fitting ones.

    Left out are contexts that share a text with what is measured on: the other split of the adversarial responses, and
    the rated turns that are not fitted on.
    """
    several = [row for _, row in read_rows(folder / SEVERAL_FILE)]
    adversarial = [row for _, row in read_rows(folder / ADVERSARIAL_FILE)]
    rated = [turn for turn in read_rated_turns(folder / RATINGS_FILE) if turn.set_name == DAILYDIALOG]
    measured = [row["context"] for row in adversarial if row["split"] != TRAINED_SPLIT]
    measured += [[text for _, text in turn.context] for turn in rated if not turn.is_fitted_on]
    trained = [row for row in adversarial if row["split"] == TRAINED_SPLIT]
    contexts = [_texts(each) for each in (*measured, *(row["context"] for row in (*several, *trained)))]
    names = group_contexts(contexts)
    forbidden = set(names[: len(measured)])
    kept = [
        (row, name)
        for row, name in zip((*several, *trained), names[len(measured) :], strict=True)
        if name not in forbidden
    ]
    turns = [turn for row, name in kept for turn in _spoken(row, name)]
    groups = [group for row, _ in kept if "adversarial" in row for group in _beside_adversarial(row)]
    return random.Random(seed).sample(turns, min(TURNS, len(turns))), groups  # noqa: S311


def _texts(context: Texts) -> list[str]:
    return [text for text in context if text.strip()]


def _context(row: dict[str, list[str]]) -> tuple[Spoken, ...]:
    return alternate(_texts(row["context"]))[-CONTEXT_TURNS:]


def _spoken(row: dict[str, list[str]], name: str) -> list[SpokenTurn]:
    return [
        SpokenTurn(
            source=DAILYDIALOG,
            dialogue=name,
            place=len(row["context"]),
            context=_context(row),
            response=response,
            next_text=None,
            goes_on=None,
            said_by_person=True,
        )
        for response in row["relevant"]
        if response.strip()
    ]


def _beside_adversarial(row: dict[str, list[str]]) -> list[Group]:
    context = _context(row)
    return [
        [
            Example(context=context, response=fitting, relevant=1.0, sound=1.0),
            Example(context=context, response=wrong, kind="adversarial", relevant=0.0, sound=1.0),
        ]
        for fitting, wrong in zip(_texts(row["relevant"]), _texts(row["adversarial"]), strict=False)
    ]
