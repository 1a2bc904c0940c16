"""A run of Locust's users: its mix and shape, what each kind of user saw, and the budgets that it must keep."""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, TypeAdapter

from turnscore_load.answers import OUTCOMES, Outcome
from turnscore_load.results import table

BUDGETS = Path(__file__).parents[2] / "budgets.toml"
# Chosen: people whose chatbots must be quick, while somebody else keeps two cores busy.
DEFAULT_MIX = "conversation=24,flood=1,batch=1"


def read_mix(text: str, kinds: Collection[str]) -> dict[str, int]:
    """`conversation=24,flood=1` as a mapping, kinds with 0 left out. Raises ValueError for anything else."""
    mix: dict[str, int] = {}
    for part in text.split(","):
        kind, _, number = part.strip().partition("=")
        if kind not in kinds or kind in mix or not number.isdecimal():
            raise ValueError(f"a mix is KIND=NUMBER,... with each of {', '.join(sorted(kinds))} at most once")
        mix[kind] = int(number)
    present = {kind: users for kind, users in mix.items() if users}
    if not present:
        raise ValueError("a mix needs at least one user")
    return present


ShapeName = Literal["steady", "ramp", "spike", "soak"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)


_RAMP_STEPS = 20
_SPIKE_BASE = 5
_SOAK_RISE = 0.05


class LoadShape(BaseModel, frozen=True):
    """A run of `seconds` with at most `users` users.

    steady: all users from the start. ramp: up to all of them in 20 equal steps. spike: a fifth of them, in the middle
    third of the time all at once. soak: all of them after the first twentieth of the time.
    """

    name: ShapeName
    # chosen: far more than two cores can serve, few enough for one generator
    users: Annotated[int, Field(ge=1, le=256)]
    seconds: Annotated[float, Field(ge=1, le=7200)]  # chosen: no run is left behind for longer than two hours

    def users_at(self, seconds: float) -> int | None:
        """Users that many seconds after the start; None when the run is over."""
        if seconds >= self.seconds:
            return None
        part = seconds / self.seconds
        if self.name == "ramp":
            step = int(part * _RAMP_STEPS) + 1
            return max(1, round(self.users * step / _RAMP_STEPS))
        if self.name == "spike" and not 1 / 3 <= part < 2 / 3:
            return max(1, self.users // _SPIKE_BASE)
        if self.name == "soak" and part < _SOAK_RISE:
            return max(1, round(self.users * part / _SOAK_RISE))
        return self.users


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What became of the calls of one kind of user. The times are those of the answered ones, in milliseconds."""

    kind: str
    seconds: float
    answered: int = 0
    refused: int = 0
    expired: int = 0
    failed: int = 0
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def calls(self) -> int:
        return self.answered + self.refused + self.expired + self.failed

    @property
    def answered_per_second(self) -> float:
        return self.answered / self.seconds

    def share(self, count: int) -> float:
        """That many calls as a share of all; 0 where there were none."""
        return count / self.calls if self.calls else 0.0


def statistics_name(kind: str, outcome: Outcome) -> str:
    """The name under which Locust counts such a call: a refusal is counted apart from the answers, not among them."""
    return kind if outcome == "answered" else f"{kind} {outcome}"


def measure(entries: Iterable[Any], kinds: Sequence[str], seconds: float) -> list[Measured]:
    """What Locust's statistics, its StatsEntry each, say of each kind, in that order."""
    by_name = {entry.name: entry for entry in entries}
    found = []
    for kind in kinds:
        named = {outcome: by_name.get(statistics_name(kind, outcome)) for outcome in OUTCOMES}
        counts = {outcome: entry.num_requests for outcome, entry in named.items() if entry}
        times = {
            f"p{percent}_ms": named["answered"].get_response_time_percentile(percent / 100)
            for percent in (50, 95, 99)
            if named["answered"]
        }
        found.append(Measured(kind=kind, seconds=seconds, **counts, **times))
    return found


def report(measured: Sequence[Measured], broken: Sequence[str]) -> str:
    """The run as Markdown, what was broken below it."""
    rows = []
    for each in measured:
        counts = [each.answered, each.refused, each.expired, each.failed]
        times = [f"{ms:.0f}" if each.answered else "-" for ms in (each.p50_ms, each.p95_ms, each.p99_ms)]
        rows.append([each.kind, *map(str, counts), f"{each.answered_per_second:.2f}", *times])
    head = ["user", "answered", "refused", "expired", "failed", "answered/s", "p50 ms", "p95 ms", "p99 ms"]
    verdict = [f"- BROKEN {sentence}" for sentence in broken] or ["Every budget was kept."]
    return "\n".join([table(head, rows, texts=1), "", *verdict])


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
        broken = []
        for name in ("p50", "p95", "p99"):
            value, most = (getattr(each, f"{name}_ms") for each in (measured, self))
            if value > most:
                broken.append(f"{measured.kind}: {name} was {value:g} ms, the budget is {most:g} ms")
        for name, said in (("failed", "failed"), ("refused", "were refused"), ("expired", "expired")):
            share, most = measured.share(getattr(measured, name)), getattr(self, f"max_{name}_share")
            if share > most:
                told = f"{100 * share:.2g} % of the calls {said}, the budget is {100 * most:g} %"
                broken.append(f"{measured.kind}: {told}")
        if measured.answered_per_second < self.min_answered_per_second:
            broken.append(
                f"{measured.kind}: {measured.answered_per_second:.2f} answered per second, "
                f"the budget is {self.min_answered_per_second:g}"
            )
        return broken


Budgets = Mapping[ShapeName, Mapping[str, Budget]]  # by shape and kind of user


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
