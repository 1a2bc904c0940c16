"""Reference files: JSON lines of contexts, hypotheses and references, and the data of Gupta et al. 2019.

    {"context_id": "c1", "system": "hred", "hypotheses": ["i see ."], "references": ["oh ?", "really ?"], "rating": 2.5}

`response` may stand for one hypothesis. `reference`, where given, is the original reply, and `references` then are all
that are known, in any order. Without `context_id` contexts differ by the texts of `context`. Other fields are left
alone. A file whose name ends in .gz is unpacked while it is read.

"Investigating Evaluation of Open-Domain Dialogue Systems With Human Generated Multiple References" (SIGDIAL 2019) is
read in place, by path: the texts are DailyDialog's (CC BY-NC-SA 4.0) and ship with nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from turnscore_assessment.errors import BadFileError, ReferencesError
from turnscore_assessment.files import check_row, read_rows

MOST_TEXTS = 1000
"""Most hypotheses, and references, of one row. Chosen: a row then makes a million pairs at most."""
MOST_CHARS = 100_000
"""Most characters of one text. Chosen: far beyond any reply."""

Text = Annotated[str, Field(max_length=MOST_CHARS, strict=True)]
Texts = Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_TEXTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedReplies:
    """One row of a file: hypotheses, and references known to be good there; texts are compared only within it."""

    context_id: str
    """Rows of one context depend on each other: intervals are taken over contexts."""
    system: str
    hypotheses: tuple[str, ...]
    references: tuple[str, ...]
    """The original reply first: `single` compares with it."""
    rating: float | None = None
    """People's rating of the row's hypothesis."""

    def with_references(self, count: int) -> "ReferencedReplies":
        """The row with its first `count` references."""
        return replace(self, references=self.references[:count])


class _ReferenceRow(BaseModel):
    """A line as it stands in the file."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    context_id: str = ""
    context: str | tuple[str, ...] = ""
    system: str = ""
    response: Text | None = None
    hypotheses: Texts | None = None
    reference: Text | None = None
    references: Texts
    rating: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _check_choice(self) -> "_ReferenceRow":
        if (self.response is None) == (self.hypotheses is None):
            raise ValueError("give either hypotheses or response")
        if not self.context_id and not self.context:
            raise ValueError("give context_id, or context as a list of texts")
        return self

    def build(self) -> ReferencedReplies:
        others = list(self.references)
        if self.reference is not None and self.reference in others:
            others.remove(self.reference)
        context = self.context if isinstance(self.context, str) else "\n".join(self.context)
        return ReferencedReplies(
            context_id=self.context_id or context,
            system=self.system or "all",
            hypotheses=self.hypotheses or (self.response or "",),
            references=(*([] if self.reference is None else [self.reference]), *others),
            rating=self.rating,
        )


def by_system(rows: Sequence[ReferencedReplies]) -> dict[str, list[ReferencedReplies]]:
    """The rows of each system, in the order in which systems are first named."""
    found: dict[str, list[ReferencedReplies]] = {}
    for row in rows:
        found.setdefault(row.system, []).append(row)
    return found


def read_comparisons(path: Path) -> list[ReferencedReplies]:
    """The rows of a file, in order. BadFileError names the line and the field, or says that there is no row."""
    rows = [check_row(_ReferenceRow.model_validate, path, *row).build() for row in read_rows(path)]
    if not rows:
        raise BadFileError(path, 0, "must have at least one row")
    return rows


RATINGS_FILE, TEST_FILE = "ratings.jsonl.gz", "test.jsonl.gz"
REFERENCES_PER_TURN = 5
"""The original, then four by one worker. The paper's own fifth collected one is not released."""


def read_rated(folder: Path) -> list[ReferencedReplies]:
    """The 500 rows of Table 4, each with all five references, the original first. Raises ReferencesError."""
    known = read_replies(folder)
    rows = read_comparisons(folder / RATINGS_FILE)
    for row in rows:
        if row.context_id not in known:
            raise ReferencesError(f"{folder / TEST_FILE} has no turn {row.context_id}, which {RATINGS_FILE} rates")
    return [replace(row, references=tuple(known[row.context_id])) for row in rows]


def read_replies(folder: Path) -> dict[str, Sequence[str]]:
    """The five replies to every turn with replies, by dialogue and place: `73_4` is turn 4 of dialogue 73, from 0."""
    found: dict[str, Sequence[str]] = {}
    path = folder / TEST_FILE
    for number, (line, fields) in enumerate(read_rows(path)):
        for place, turn in enumerate(check_row(_TestDialogue.model_validate, path, line, fields).turns):
            if turn.references:
                if len(turn.references) != REFERENCES_PER_TURN:
                    raise BadFileError(path, line, f"turns.{place}.references: five are expected")
                found[f"{number}_{place}"] = turn.references
    return found


class _TestTurn(BaseModel):
    references: tuple[str, ...] = ()


class _TestDialogue(BaseModel):
    turns: tuple[_TestTurn, ...]
