"""Live values: counts of the scores of one bot's turns. They hold no text."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, with_config

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import check_row

BINS = 10
"""Bins of percentiles: up to 10, up to 20 and so on."""
_FORM = 1
_Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(kw_only=True)
class LiveValues:
    """Counts of one scorer's bundle; floats, because Prometheus extrapolates."""

    scorer: str
    model: str
    bins: Annotated[list[_Count], Field(min_length=BINS, max_length=BINS)]
    """Turns by percentile: up to 10, up to 20 and so on."""
    dialogues: _Count = 0.0
    turns: _Count = 0.0
    low: _Count = 0.0
    labelled: _Count = 0.0
    cut: _Count = 0.0
    foreign: _Count = 0.0
    not_computable: _Count = 0.0
    tokens: _Count = 0.0
    chars: _Count = 0.0
    products: list[Annotated[list[_Count], Field(min_length=BINS, max_length=BINS)]] = field(default_factory=list)
    """Over dialogues, the sum of the products of any two bins' turns, which shows how alike a dialogue's turns are;
    empty where dialogues were not counted one by one."""

    @classmethod
    def empty(cls, scorer: str, model: str) -> "LiveValues":
        return cls(scorer=scorer, model=model, bins=[0.0] * BINS)

    def add(self, other: "LiveValues") -> None:
        """Adds the other's counts."""
        if not any(self.bins):
            self.products = other.products
        elif any(other.bins):
            both = bool(self.products and other.products)
            self.products = (np.array(self.products) + other.products).tolist() if both else []
        self.bins = [mine + its for mine, its in zip(self.bins, other.bins, strict=True)]
        for each in fields(self)[3:-1]:
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Collection:
    """Live values by scorer and model, in the order in which they came."""

    def __init__(self, found: Iterable[LiveValues] = ()) -> None:
        self._found: dict[tuple[str, str], LiveValues] = {}
        for each in found:
            self.of(each.scorer, each.model).add(each)

    def of(self, scorer: str, model: str) -> LiveValues:
        """The counts of one bundle, to be added to."""
        return self._found.setdefault((scorer, model), LiveValues.empty(scorer, model))

    def all(self) -> list[LiveValues]:
        """The counts of every bundle that scored turns."""
        return [each for each in self._found.values() if each.turns or each.not_computable or any(each.bins)]


_BASELINE = TypeAdapter(list[LiveValues])


def write_baseline(path: Path, values: Iterable[LiveValues]) -> None:
    """A baseline as JSON: counts alone."""
    path.write_text(json.dumps({"form": _FORM, "values": [asdict(each) for each in values]}, indent=1) + "\n")


def read_baseline(path: Path) -> list[LiveValues]:
    """The values that `write_baseline` wrote. Raises BadFileError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("form") != _FORM:
            raise BadFileError(path, 0, "is not a baseline that turnscore drift wrote")
    except (OSError, ValueError) as error:
        raise BadFileError(path, 0, f"cannot be read ({error})") from error
    return check_row(_BASELINE.validate_python, path, 0, content.get("values"), "values")
