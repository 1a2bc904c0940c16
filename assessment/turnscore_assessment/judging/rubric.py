"""Rubrics: a Markdown file with a section for each criterion, its scale, and what of a judge's answer is a mark."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from turnscore_assessment.errors import BadFileError

_HEADING = re.compile(r"##(?!#)\s*(.*?)\s*")
_CRITERION = re.compile(r"([a-z][a-z0-9_]{0,39}) \((?:(yes or no)|(-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?))\)")
YES_OR_NO = "yes or no"
RESERVED = {"id", "judges", "made", "marks", "people", "text"}  # what a response of a row has besides its marks


@dataclass(frozen=True)
class RubricCriterion:
    """What a rubric asks of a response; a mark is a number from `low` to `high`, of yes or no 1 or 0."""

    name: str
    low: float
    high: float
    is_yes_or_no: bool
    description: str

    @cached_property
    def _answers(self) -> TypeAdapter[Any]:
        if self.is_yes_or_no:
            return TypeAdapter(Literal["yes", "no"])
        return TypeAdapter(Annotated[float, Field(ge=self.low, le=self.high, strict=True, allow_inf_nan=False)])

    @property
    def scale(self) -> str:
        """The answers, in words."""
        return YES_OR_NO if self.is_yes_or_no else f"a number from {self.low:g} to {self.high:g}"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of an answer."""
        return self._answers.json_schema()

    def read_mark(self, answer: object) -> float | None:
        """The mark; None for an answer of another shape or out of the scale."""
        try:
            found = self._answers.validate_python(answer)
        except ValidationError:
            return None
        return float(found == "yes") if self.is_yes_or_no else float(found)

    def to_mark(self, value: float) -> float:
        """The mark that a scorer's value from 0 to 1 stands for."""
        return self.low + value * (self.high - self.low)


@dataclass(frozen=True)
class Rubric:
    """The criteria in their order, and all of the text that a judge reads."""

    criteria: Mapping[str, RubricCriterion]
    text: str
    sha256: str

    @property
    def scales(self) -> dict[str, list[float]]:
        return {name: [each.low, each.high] for name, each in self.criteria.items()}


def read_template() -> str:
    """The rubric that ships, to be changed."""
    return files(__package__).joinpath("rubric.md").read_text(encoding="utf-8")


def read_rubric(path: Path) -> Rubric:
    """The rubric. BadFileError names the line that is wrong."""
    try:
        raw = path.read_bytes()
        # Comments keep their ends of lines, so that errors name the right one.
        text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), raw.decode("utf-8-sig"), flags=re.S)
    except (OSError, UnicodeDecodeError) as error:
        raise BadFileError(path, 0, f"cannot be read ({error})") from error
    criteria: dict[str, RubricCriterion] = {}
    for each, line in _read_sections(path, text.splitlines()):
        if each.name in criteria:
            raise BadFileError(path, line, f"{each.name} was already described")
        criteria[each.name] = each
    if not criteria:
        raise BadFileError(path, 0, "has no criterion: write a heading such as `## on_brand (1 to 5)`")
    return Rubric(criteria, re.sub(r"\n{3,}", "\n\n", text).strip(), f"sha256:{hashlib.sha256(raw).hexdigest()}")


def _read_sections(path: Path, lines: list[str]) -> Iterator[tuple[RubricCriterion, int]]:
    starts = [place for place, line in enumerate(lines) if _HEADING.fullmatch(line)]
    for start, end in pairwise([*starts, len(lines)]):
        heading = lines[start].removeprefix("##").strip()
        found, problem = _CRITERION.fullmatch(heading), ""
        if found is None:
            problem = f"{heading!r} must be a name and a scale, as in `on_brand (1 to 5)` or `safe ({YES_OR_NO})`"
            raise BadFileError(path, start + 1, problem)
        name, words, low, high = found.groups()
        description = "\n".join(lines[start + 1 : end]).strip()
        if name in RESERVED:
            problem = f"no criterion may be called {name}: rows have a field of that name"
        elif not words and float(low) >= float(high):
            problem = f"the scale of {name} must begin with the smaller number"
        elif not description:
            problem = f"{name} has no description: a judge must know what it means"
        if problem:
            raise BadFileError(path, start + 1, problem)
        yield RubricCriterion(name, float(low or 0), float(high or 1), bool(words), description), start + 1
