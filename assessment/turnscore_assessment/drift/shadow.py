"""Shadows: how a candidate version differs from the served one, as counts of metrics, a table and an HTML page."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from scipy.stats import binomtest

from turnscore_assessment.drift.sources import Sample
from turnscore_assessment.rendering import Page, Section, Table

_Key = TypeVar("_Key")

_PREFIX = "turnscore_shadow_"
TOTALS = tuple(
    f"{_PREFIX}{name}"
    for name in ("turns_total", "percentiles_total", "labels_total", "cpu_seconds_total", "percentile_shift_bucket")
)
"""Series that add up over replicas and windows."""
CORRELATION = f"{_PREFIX}rank_correlation"
"""The series whose least value counts."""
FAR = 10
"""Difference of percentiles that counts as far; a bound of the metric's buckets. Chosen."""


@dataclass(kw_only=True)
class ShadowValues:
    """Counts of one scorer's shadow of one served version; floats, because Prometheus extrapolates."""

    scorer: str
    model: str
    served: str
    turns: dict[str, float] = field(default_factory=dict)
    """By outcome: compared, failed, full, late."""
    percentiles: dict[str, float] = field(default_factory=dict)
    """Sums by version: served, shadow."""
    labels: dict[tuple[str, str], float] = field(default_factory=dict)
    """Turns by the served version's label and the shadow's."""
    shifts: dict[float, float] = field(default_factory=dict)
    """Turns whose percentiles differ by at most the key."""
    cpu_seconds: float = 0.0
    correlation: float | None = None

    @property
    def compared(self) -> float:
        """Turns that both versions scored."""
        return self.turns.get("compared", 0.0)

    @property
    def dropped(self) -> float:
        """Turns that were dropped: no room or time."""
        return self.turns.get("full", 0.0) + self.turns.get("late", 0.0)

    @property
    def mean_shift(self) -> float:
        """Mean percentile of the shadow minus that of the served version."""
        return (self.percentiles.get("shadow", 0.0) - self.percentiles.get("served", 0.0)) / self.compared

    @property
    def far_share(self) -> float:
        """Share of compared turns whose percentiles differ by more than `FAR`."""
        every = self.shifts.get(math.inf, 0.0)
        return max(0.0, 1 - self.shifts.get(float(FAR), 0.0) / every) if every else math.nan

    @property
    def labelled(self) -> float:
        """Compared turns that got a label by both versions."""
        return sum(count for pair, count in self.labels.items() if "none" not in pair)

    def flipped(self, label: str = "") -> float:
        """Turns with one label by the served version and another by the shadow; those that get this one, if given."""
        return sum(
            count
            for (was, becomes), count in self.labels.items()
            if was != becomes and "none" not in (was, becomes) and label in ("", becomes)
        )

    def flip_interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share of labelled turns whose label flips, as if turns were independent."""
        flips = round(self.flipped())
        interval = binomtest(flips, max(flips, round(self.labelled))).proportion_ci(method="wilson")
        return float(interval.low), float(interval.high)


def collect_shadows(samples: Iterable[Sample]) -> list[ShadowValues]:
    """The samples by scorer, shadow and served version, where any turn was compared."""
    found: dict[tuple[str, str, str], ShadowValues] = {}
    for series, labels, value in samples:
        if not series.startswith(_PREFIX) or not math.isfinite(value):
            continue
        scorer, model, served = (labels.get(name, "") for name in ("scorer", "model", "served"))
        values = found.setdefault((scorer, model, served), ShadowValues(scorer=scorer, model=model, served=served))
        _count(values, series, labels, value)
    return [each for each in found.values() if each.compared >= 1]


def _count(values: ShadowValues, series: str, labels: Mapping[str, str], value: float) -> None:
    name = series.removeprefix(_PREFIX)
    if name == "turns_total":
        _add(values.turns, labels.get("outcome", ""), value)
    elif name == "percentiles_total":
        _add(values.percentiles, labels.get("by", ""), value)
    elif name == "labels_total":
        _add(values.labels, (labels.get("served_label", ""), labels.get("shadow_label", "")), value)
    elif name == "percentile_shift_bucket":
        _add(values.shifts, float(labels["le"]), value)
    elif name == "cpu_seconds_total":
        values.cpu_seconds += value
    elif series == CORRELATION:
        values.correlation = value if values.correlation is None else min(values.correlation, value)


def _add(counts: dict[_Key, float], key: _Key, value: float) -> None:
    counts[key] = counts.get(key, 0.0) + value


def build_shadow_page(found: Sequence[ShadowValues], command: str) -> Page:
    """For each candidate what would change, and every pair of labels."""
    return Page(
        title="Shadows",
        summary=[f"{_name(each)}: {each.compared:,.0f} turns compared." for each in found],
        sections=[
            Section(
                _name(each),
                tables=[Table(_name(each), ("", "figure"), _rows(each)), Table("Labels", _LABELS, _label_rows(each))],
            )
            for each in found
        ],
        command=command,
    )


_LABELS = ("served", "shadow", "turns")


def _name(values: ShadowValues) -> str:
    return f"{values.model} beside {values.served}"


def _rows(values: ShadowValues) -> list[tuple[str, str]]:
    turns, labelled = values.compared, values.labelled
    flips = "-"
    if labelled >= 1:
        low, high = values.flip_interval()
        flips = f"{values.flipped() / labelled:.1%} ({low:.1%} to {high:.1%})"
    correlation = "fewer than 30 turns" if values.correlation is None else f"{values.correlation:.3f}"
    return [
        ("turns compared", f"{turns:,.0f}"),
        ("turns dropped, as no moment was idle", f"{values.dropped:,.0f}"),
        ("turns failed", f"{values.turns.get('failed', 0.0):,.0f}"),
        ("mean percentile, the shadow's less the served version's", f"{values.mean_shift:+.2f}"),
        (f"turns whose percentiles differ by more than {FAR}", f"{values.far_share:.1%}"),
        ("rank correlation, latest turns", correlation),
        ("labels that flip, with Wilson's interval", flips),
        *((f"become {label}", f"{values.flipped(label):,.0f}") for label in ("low", "fair", "good")),
        ("CPU per compared turn", f"{1000 * values.cpu_seconds / turns:.1f} ms"),
    ]


def _label_rows(values: ShadowValues) -> list[tuple[str, str, str]]:
    return [(was, becomes, f"{count:,.0f}") for (was, becomes), count in sorted(values.labels.items()) if count >= 1]
