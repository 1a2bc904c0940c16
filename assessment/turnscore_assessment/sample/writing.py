"""Writes the sample. The same seed gives the same bytes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from turnscore_assessment.data.dialogue_sets import SAMPLE_FILE
from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.files import to_csv, write_rows
from turnscore_assessment.sample.sets import ASSESSED_FILES, PAIR_FILES, ROW_FILES, make_assessed, make_pairs, talk_for

NOTE = """# Sample

Made-up small talk, written by `turnscore data sample`; Apache-2.0, as turnscore is. It stands in the place of every
public set that docs/data.md names, so that each command can be tried. Nothing measured or trained on it means anything.
"""
LEFT_OUT = 10
"""Dialogues of ConvAI that stand for those judged turn by turn."""


def write_sample(folder: Path, seed: int = 0) -> list[Path]:
    """Writes every file into the empty or missing folder; AssessmentError where it is in use."""
    if folder.exists() and any(folder.iterdir()):
        raise AssessmentError(f"{folder}: is not empty; choose another folder")
    written = []
    for name, make in ROW_FILES.items():
        written.append(_write_rows(folder / name, make(talk_for(name, seed))))
    for name in ASSESSED_FILES:
        path = folder / "human_assessment" / f"{name}.jsonl.gz"
        written.append(_write_rows(path, make_assessed(talk_for(name, seed), name)))
    published = folder / "predictive_engagement"
    published.mkdir()
    for name, count in PAIR_FILES.items():
        rows = [(number, *row) for number, row in enumerate(make_pairs(talk_for(name, seed), count))]
        written.append(_write(published / f"{name}.csv", to_csv(["id", "query", "reply", "label"], rows)))
    left_out = "".join(f"s{number}\t3\n" for number in range(LEFT_OUT))
    written.append(_write(published / "50convs_AMT.txt", left_out))
    _write(folder / SAMPLE_FILE, NOTE)
    return written


def _write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    write_rows(path, rows)
    return path


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
