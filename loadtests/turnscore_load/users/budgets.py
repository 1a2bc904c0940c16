"""Budgets: what a run must keep, and what it broke. Pure, but for reading the file."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, TypeAdapter

from turnscore_load.users.report import Measured
from turnscore_load.users.shapes import ShapeName

Share = Annotated[float, Field(ge=0, le=1)]


class Budget(BaseModel):
    """What one kind of user must see in one shape. Times are those of answered calls; shares are of all its calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    p50_ms: PositiveFloat
    p95_ms: PositiveFloat
    p99_ms: PositiveFloat
    max_failed_share: Share
    max_refused_share: Share
    max_expired_share: Share
    min_answered_per_second: NonNegativeFloat

    def broken_by(self, measured: Measured) -> list[str]:
        """A sentence for everything that was not kept; empty when all was."""
        if not measured.answered:
            return [f"{measured.kind}: not one call was answered"]
        broken = [
            f"{measured.kind}: {name} was {value:g} ms, the budget is {most:g} ms"
            for name, value, most in (
                ("p50", measured.p50_ms, self.p50_ms),
                ("p95", measured.p95_ms, self.p95_ms),
                ("p99", measured.p99_ms, self.p99_ms),
            )
            if value > most
        ]
        broken += [
            f"{measured.kind}: {100 * measured.share(count):.2g} % of the calls {name}, the budget is {100 * most:g} %"
            for name, count, most in (
                ("failed", measured.failed, self.max_failed_share),
                ("were refused", measured.refused, self.max_refused_share),
                ("expired", measured.expired, self.max_expired_share),
            )
            if measured.share(count) > most
        ]
        if measured.answered_per_second < self.min_answered_per_second:
            broken.append(
                f"{measured.kind}: {measured.answered_per_second:.2f} answered per second, "
                f"the budget is {self.min_answered_per_second:g}"
            )
        return broken


Budgets = Mapping[ShapeName, Mapping[str, Budget]]
"""By shape and kind of user."""


def read_budgets(file: Path) -> Budgets:
    """The budgets of a file. Raises ValidationError, which names the line's path, where one is wrong or missing."""
    return TypeAdapter(dict[ShapeName, dict[str, Budget]]).validate_python(
        tomllib.loads(file.read_text(encoding="utf-8"))
    )


def broken_budgets(budgets: Budgets, shape: ShapeName, rows: Sequence[Measured]) -> list[str]:
    """A sentence for everything that the run did not keep; a kind without a budget is one of them."""
    broken = []
    for row in rows:
        budget = budgets.get(shape, {}).get(row.kind)
        broken += budget.broken_by(row) if budget else [f"{row.kind}: there is no budget for it in {shape}"]
    return broken
