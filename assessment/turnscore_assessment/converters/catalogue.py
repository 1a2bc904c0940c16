"""The sets by name: their files, their reader, and the counts of a correct reading of the whole set."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.converters import readers
from turnscore_assessment.converters.readers import Record
from turnscore_assessment.errors import BadFileError

Read = Callable[[Sequence[Path]], Iterator[Record]]


@dataclass(frozen=True, kw_only=True)
class OriginalSet:
    """A set as its authors publish it."""

    read: Read
    files: tuple[str, ...]
    """Patterns of the files in a folder, in the order in which they are read."""
    rows: int | None = None
    """Rows of the whole set; None where we hold none to count."""
    turns: int | None = None
    becomes: str = ""
    """The file name that our commands look for."""
    note: str = ""


SETS: Mapping[str, OriginalSet] = {
    "convai2017": OriginalSet(
        read=readers.read_convai,
        files=("*data_train_*.json*", "*data_test_*.json*"),
        rows=2778,
        turns=30434,
        becomes="convai2017.jsonl.gz",
    ),
    "dstc9": OriginalSet(
        read=readers.read_dstc9,
        files=("*chatbot*.json*",),
        rows=2200,
        becomes="dstc9_interactive.jsonl.gz",
        note="ours has 2,081: ConTurE's dialogues are left out",
    ),
    "dbdc3": OriginalSet(
        read=readers.read_dbdc3,
        files=("*iris_*.log.json*", "*t*k*_*.log.json*", "*yi_*.log.json*"),
        rows=300,
        turns=6100,
        becomes="dbdc3_dev.jsonl.gz",
    ),
    "dialogue-eval": OriginalSet(
        read=readers.read_dialogue_eval,
        files=("*.json*",),
        becomes="human_assessment/{run}_{pass,fail}.jsonl.gz",
        note="a file at a time; 5,316 rows and 113,346 turns in all six",
    ),
    "schema-guided": OriginalSet(
        read=readers.read_schema_guided,
        files=("*dialogues_*.json*",),
        becomes="dialogue_text.jsonl.gz",
        note="ours has 17,193 dialogues and 312,250 turns of it",
    ),
    "topical-chat": OriginalSet(
        read=readers.read_topical_chat,
        files=("*valid_freq.json*", "*valid_rare.json*", "*test_freq.json*", "*test_rare.json*"),
        rows=2115,
        turns=46014,
        becomes="dialogue_text.jsonl.gz",
    ),
    "synthetic-persona-chat": OriginalSet(
        read=readers.read_persona_chat,
        files=("*valid*.csv*", "*test*.csv*"),
        rows=1968,
        turns=54516,
        becomes="dialogue_text.jsonl.gz",
    ),
    "dailydialog-adversarial": OriginalSet(
        read=readers.read_adversarial,
        files=("dev.json*", "*[!a-z]dev.json*", "test.json*", "*[!a-z]test.json*"),  # not multireftest.json
        becomes="adversarial_responses.jsonl.gz",
        note="ours has 2,132 contexts",
    ),
    "dailydialog-several": OriginalSet(
        read=readers.read_several,
        files=("*train*.json*",),
        becomes="several_responses.jsonl.gz",
        note="ours has 7,482 contexts",
    ),
    "grade": OriginalSet(
        read=readers.read_grade,
        files=("*human_judgement.json*",),
        becomes="turn_ratings.jsonl.gz",
        note="ours has 583 of convai2's 600, without what stands in a held-back set",
    ),
    "zhao": OriginalSet(
        read=readers.read_zhao,
        files=("*persona-zhao.csv*", "*dailydialog-zhao.csv*"),
        rows=1800,
        becomes="turn_ratings.jsonl.gz",
        note="900 of each set; ours has 1,714, without what stands in a held-back set",
    ),
    "multiref-ratings": OriginalSet(
        read=readers.read_multiref_ratings,
        files=("*mturk_rating_processed_output.csv*",),
        rows=500,
        becomes="multiref/ratings.jsonl.gz",
    ),
    "multiref-test": OriginalSet(
        read=readers.read_multiref_test,
        files=("*multireftest.json*",),
        rows=1000,
        turns=7740,
        becomes="multiref/test.jsonl.gz",
    ),
}


def find_files(described: OriginalSet, source: Path) -> list[Path]:
    """The file itself, or the set's files anywhere in the folder, by pattern and then by name.

    BadFileError where the folder has none.
    """
    if source.is_file():
        return [source]
    found = [path for pattern in described.files for path in sorted(source.rglob(pattern)) if path.is_file()]
    if not found:
        raise BadFileError(source, 0, f"has no file like {' or '.join(described.files)}")
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class RowCounts:
    """Rows and turns of a converted file; a row of responses has no turns."""

    rows: int
    turns: int


def count_rows(rows: Iterable[Record]) -> RowCounts:
    found = [len(row.get("turns", ())) for row in rows]
    return RowCounts(len(found), sum(found))


def compare_counts(described: OriginalSet, found: RowCounts) -> str:
    """A sentence on whether these are the counts of the whole set."""
    wanted = [
        (name, want, have)
        for name, want, have in (("rows", described.rows, found.rows), ("turns", described.turns, found.turns))
        if want is not None
    ]
    if not wanted:
        return described.note
    missed = [f"{want:,} {name}" for name, want, have in wanted if want != have]
    if missed:
        return f"the whole set has {' and '.join(missed)}: this is a part of it, or another version"
    return "these are the counts of the whole set"
