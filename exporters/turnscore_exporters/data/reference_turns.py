"""Reference turns: real turns with their context, for parity and for the calibration curve. Reads, never labels."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.data.dialogues import RecordedDialogue, RecordedTurn, merge_turns, read_dialogues
from turnscore_assessment.errors import BadFileError

from turnscore_exporters.data.convai import (
    CONVAI_FILE,
    LEFT_OUT_FILE,
    ConvaiSplit,
    TextPair,
    read_left_out_ids,
    split_dialogues,
)
from turnscore_exporters.errors import ExporterError

SYSTEM_FILE = "dstc9_interactive.jsonl.gz"


@dataclass(frozen=True)
class ReferenceTurns:
    """(query, reply) texts and the sentence that names their source; an empty query opens a dialogue."""

    pairs: Sequence[tuple[str, str]]
    source: str


def read_reference_turns(folder: Path, limit: int, seed: int = 0) -> ReferenceTurns:
    """Draws at most `limit` turns, half from ConvAI's test dialogues, half system turns of DSTC9, without repeats.

    A missing DSTC9 file leaves ConvAI alone; BadFileError if nothing can be read.
    """
    dialogues = list(read_dialogues(folder / CONVAI_FILE))
    left_out = read_left_out_ids(folder / LEFT_OUT_FILE)
    test = split_dialogues(dialogue for dialogue in dialogues if dialogue.id not in left_out)[ConvaiSplit.TEST]
    sources = {"ConvAI 2017 test dialogues": [pair for each in test for pair in pair_turns(each, None)]}
    if (folder / SYSTEM_FILE).exists():
        system = [pair for each in read_dialogues(folder / SYSTEM_FILE) for pair in pair_turns(each, "system")]
        sources["system turns of DSTC9 interactive"] = system
    share = limit // len(sources)
    generator = random.Random(seed)  # noqa: S311
    drawn: list[tuple[str, str]] = []
    for found in sources.values():
        unique = sorted(set(found))
        drawn += generator.sample(unique, min(share, len(unique)))
    if not drawn:
        raise BadFileError(folder / CONVAI_FILE, 0, "has no turns")
    generator.shuffle(drawn)
    return ReferenceTurns(drawn, " and ".join(sources))


def choose_reference_turns(folder: Path | None, dialogues: Sequence[Path], limit: int) -> ReferenceTurns:
    """Reference turns of a data folder, or from files of dialogues; ExporterError unless one of the two is given."""
    if (folder is None) == (not dialogues):
        raise ExporterError("give either --data or --dialogues: parity and percentiles are measured on real turns")
    if folder is not None:
        return read_reference_turns(folder, limit)
    unique = sorted({pair for path in dialogues for each in read_dialogues(path) for pair in pair_turns(each, None)})
    drawn = random.Random(0).sample(unique, min(limit, len(unique)))  # noqa: S311
    return ReferenceTurns(drawn, " and ".join(path.name for path in dialogues))


def pair_turns(dialogue: RecordedDialogue, speaker: str | None) -> list[tuple[str, str]]:
    """Every merged turn of that speaker, or of both, with the turn before it; the first has an empty query."""
    turns: tuple[RecordedTurn, ...] = merge_turns(dialogue.turns)
    queries = ["", *(turn.text for turn in turns)]
    return [
        (query, turn.text)
        for query, turn in zip(queries, turns, strict=False)
        if (speaker is None or turn.speaker == speaker) and turn.text.strip()
    ]


def texts_and_labels(pairs: Sequence[TextPair]) -> tuple[list[tuple[str, str]], list[int]]:
    """(query, reply) texts and labels of the pairs that a service would accept: those with a reply."""
    kept = [pair for pair in pairs if pair.reply.strip()]
    return [(pair.query, pair.reply) for pair in kept], [int(pair.label) for pair in kept]
