"""The multi-reference data of Gupta et al. 2019 in JSON lines: rated replies, and references for DailyDialog's test.

"Investigating Evaluation of Open-Domain Dialogue Systems With Human Generated Multiple References", SIGDIAL 2019. Read
in place, by path: the texts are DailyDialog's (CC BY-NC-SA 4.0) and ship with nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnscore_assessment.references.comparisons import Comparison
from turnscore_assessment.references.errors import ReferencesError, UnreadableRowError
from turnscore_assessment.references.reference_file import read_comparisons, read_lines

RATINGS_FILE, TEST_FILE = "ratings.jsonl.gz", "test.jsonl.gz"
REFERENCES_PER_TURN = 5
"""The original, then four by one worker. The paper's own fifth collected one is not released."""
HUMAN, HUMAN_PLACE = "human", 1
"""Table 6's human is the first collected reference, against the other four."""


def read_rated(folder: Path) -> list[Comparison]:
    """The 500 rows of Table 4, each with all five references, the original first. Raises ReferencesError."""
    known = read_replies(folder)
    rows = read_comparisons(folder / RATINGS_FILE)
    for row in rows:
        if row.context_id not in known:
            raise ReferencesError(f"{folder / TEST_FILE} has no turn {row.context_id}, which {RATINGS_FILE} rates")
    return [replace(row, references=tuple(known[row.context_id])) for row in rows]


def read_human(folder: Path, *, is_single: bool) -> list[Comparison]:
    """The rows of Table 6's human: all 6,740 turns, against the original alone or against the four others."""
    places = (0,) if is_single else (0, 2, 3, 4)
    return [
        Comparison(
            context_id=name,
            system=HUMAN,
            hypotheses=(texts[HUMAN_PLACE],),
            references=tuple(texts[place] for place in places),
        )
        for name, texts in read_replies(folder).items()
    ]


def read_outputs(folder: Path, outputs: Path, mapping: Mapping[str, int], *, is_single: bool) -> list[Comparison]:
    """The rows of another system of Table 6: a line of `outputs` for each turn, `mapping` from its name to the line.

    The release's `Code/hredf.txt` with `jsons/test_duid_mapping.json` is HRED. Lines count from 1. Raises
    ReferencesError where a turn has no line.
    """
    lines = outputs.read_text(encoding="utf-8").splitlines()
    rows = []
    for row in read_human(folder, is_single=is_single):
        number = mapping.get(row.context_id, 0)
        if not 0 < number <= len(lines):
            raise ReferencesError(f"{outputs} has no line for turn {row.context_id}")
        rows.append(replace(row, system=outputs.stem, hypotheses=(lines[number - 1],)))
    return rows


def read_replies(folder: Path) -> dict[str, Sequence[str]]:
    """The five replies to every turn with replies, by dialogue and place: `73_4` is turn 4 of dialogue 73, from 0."""
    found: dict[str, Sequence[str]] = {}
    for number, (place, dialogue) in enumerate(read_lines(folder / TEST_FILE)):
        for turn_number, turn in enumerate(_read_turns(dialogue, place)):
            if references := turn.get("references"):
                if len(references) != REFERENCES_PER_TURN:
                    raise UnreadableRowError(place, f"turns.{turn_number}.references: five are expected")
                found[f"{number}_{turn_number}"] = references
    return found


def _read_turns(dialogue: Mapping[str, Any], place: str) -> list[Any]:
    turns = dialogue.get("turns")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise UnreadableRowError(place, "turns: must be a list of objects")
    return turns
