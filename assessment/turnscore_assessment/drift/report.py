"""Reports on drift and on shadows: what moved, what a candidate version would change, and rules for Prometheus."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from turnscore_assessment.drift.sources import BINS, LiveValues, Sample
from turnscore_assessment.figures import Floats
from turnscore_assessment.rendering import Page, Section, Table

LEVEL = 0.01  # Most false alarms per window without drift. Chosen; docs/compare.md has what it comes to.
LEAST_DIALOGUES = 100  # Fewest dialogues of a window. Chosen: with fewer, a limit finds nothing but a bot that broke.
# Chosen below LEVEL: the approximated tail then alarms in at most 1 % of equal windows, at .01 in 1.2 %.
CLUSTERED_LEVEL = 0.0075
CHI_SQUARED = float(scipy.stats.chi2.isf(LEVEL, BINS - 1))
UNIFORM = (1 / BINS,) * BINS  # The shares of the bundle's reference turns, equal by the definition of a percentile.


def find_shares(bins: ArrayLike) -> tuple[float, ...]:
    """The share of turns in each bin, none of them 0."""
    counts = np.asarray(bins, dtype=np.float64) + 0.5  # chosen: turns added to each bin
    return tuple(float(each) for each in counts / counts.sum())


def measure_stability(bins: ArrayLike, reference: Sequence[float] = UNIFORM) -> float:
    """The population stability index of counted turns against reference shares; 0 where they are equal."""
    seen, expected = np.array(find_shares(bins)), np.asarray(reference, dtype=np.float64)
    return float(np.sum((seen - expected) * np.log(seen / expected)))


def find_limit(dialogues: float, reference_dialogues: float | None = None) -> float:
    """What the index exceeds without drift with probability `LEVEL`, if all turns of a dialogue fall into one bin."""
    return CHI_SQUARED * (1 / dialogues + (1 / reference_dialogues if reference_dialogues else 0.0))


def estimate_covariance(bins: ArrayLike, products: ArrayLike, dialogues: float) -> Floats:
    """The covariance of the shares, dialogues being drawn; `products`: the sum of c c' over the dialogues' counts c."""
    counts = np.asarray(bins, dtype=np.float64)
    turns = counts.sum()
    # A dialogue's rest is c - p * (its turns), so the sum of the rests' products follows from those of the counts.
    center = np.eye(BINS) - np.outer(counts / turns, np.ones(BINS))
    rests = center @ np.asarray(products, dtype=np.float64) @ center.T
    return np.asarray(rests / turns**2 * dialogues / (dialogues - 1))


def find_clustered_limit(shares: Sequence[float], covariance: Floats) -> float:
    """What the index exceeds without drift with a probability below `LEVEL`.

    `shares` are the expected ones, `covariance` is that of what is seen less what is expected.
    """
    roots = np.sqrt(np.asarray(shares, dtype=np.float64))
    weights = np.clip(np.linalg.eigvalsh(covariance / np.outer(roots, roots)), 0, None)
    first, second, third = (float((weights**power).sum()) for power in (1, 2, 3))
    freedom = second**3 / third**2
    return first + float(scipy.stats.chi2.isf(CLUSTERED_LEVEL, freedom) - freedom) * float(np.sqrt(second / freedom))


# Share of turns in another language for a warning. Chosen: the detector names one English turn in thousands.
FOREIGN_LIMIT = 0.05


class DriftVerdict(StrEnum):
    """The verdict on an index."""

    STABLE = "stable"
    DRIFTED = "DRIFTED"
    TOO_FEW = f"fewer than {LEAST_DIALOGUES} dialogues"


@dataclass(frozen=True)
class DriftComparison:
    """Live values against one reference."""

    against: str
    index: float
    limit: float
    verdict: DriftVerdict


@dataclass(frozen=True)
class DriftFinding:
    """One bundle's live values, their comparisons, and warnings."""

    live: LiveValues
    baseline: LiveValues | None
    comparisons: Sequence[DriftComparison]
    warnings: Sequence[str]

    @property
    def has_drifted(self) -> bool:
        """Whether any comparison found drift."""
        return any(each.verdict is DriftVerdict.DRIFTED for each in self.comparisons)


def find_drift(live: Sequence[LiveValues], baseline: Sequence[LiveValues] = ()) -> list[DriftFinding]:
    """A finding for each bundle, with a warning where the baseline is of another version."""
    return [_look_at(each, baseline) for each in live]


def _look_at(live: LiveValues, baselines: Sequence[LiveValues]) -> DriftFinding:
    baseline = next((each for each in baselines if (each.scorer, each.model) == (live.scorer, live.model)), None)
    comparisons = []
    if any(live.bins):
        comparisons.append(_compare("bundle", live, None, baseline))
        if baseline is not None:
            comparisons.append(_compare("baseline", live, baseline, baseline))
    warnings = []
    if live.turns and live.foreign / live.turns > FOREIGN_LIMIT:
        warnings.append(f"{live.foreign / live.turns:.0%} of turns are hardly in the model's language")
    others = sorted({each.model for each in baselines if each.scorer == live.scorer})
    if baseline is None and others:
        warnings.append(f"the baseline is of {', '.join(others)}: take a new one with {live.model}")
    if not any(live.bins):
        warnings.append("no turn has a percentile")
    return DriftFinding(live, baseline, comparisons, warnings)


def _compare(against: str, live: LiveValues, baseline: LiveValues | None, known: LiveValues | None) -> DriftComparison:
    """`known` is the bundle's baseline, which may tell how alike a dialogue's turns are where `live` does not."""
    index = measure_stability(live.bins, UNIFORM if baseline is None else find_shares(baseline.bins))
    fewest = min(live.dialogues, live.dialogues if baseline is None else baseline.dialogues)
    verdict = DriftVerdict.TOO_FEW
    limit = _choose_limit(live, baseline, known)
    if fewest >= LEAST_DIALOGUES:
        verdict = DriftVerdict.DRIFTED if index > limit else DriftVerdict.STABLE
    return DriftComparison(against, index, limit, verdict)


def _choose_limit(live: LiveValues, baseline: LiveValues | None, known: LiveValues | None) -> float:
    sides = [live] if baseline is None else [live, baseline]
    counted = [each for each in (live, known) if each is not None and each.products and each.dialogues > 1]
    plain = find_limit(max(1.0, live.dialogues), None if baseline is None else max(1.0, baseline.dialogues))
    if not counted or not all(each.dialogues for each in sides):
        return plain
    covariance = np.zeros((BINS, BINS))
    for side in sides:
        source = side if side in counted else counted[0]
        own = estimate_covariance(source.bins, source.products, source.dialogues)
        covariance += own * source.dialogues / side.dialogues
    shares = np.mean([UNIFORM if baseline is None else find_shares(each.bins) for each in sides], axis=0)
    # Where all turns are in one bin, nothing varies, and the limit would be 0.
    return find_clustered_limit(shares.tolist(), covariance) if covariance.any() else plain


_HEADER = ("scorer", "model", "against", "dialogues", "turns", "index", "limit", "verdict")
_SHARES = ("", "now", "baseline")


def build_page(findings: Sequence[DriftFinding], command: str) -> Page:
    """Every comparison, then for each bundle the shares of its bins and what else was counted."""
    drifted = [each.live.model for each in findings if each.has_drifted]
    verdicts = {compared.verdict for each in findings for compared in each.comparisons}
    told = "No verdict: too few dialogues." if verdicts == {DriftVerdict.TOO_FEW} else "Nothing drifted beyond chance."
    warnings = [f"warning: {each.live.model}: {warning}" for each in findings for warning in each.warnings]
    return Page(
        title="Drift of scores",
        summary=[f"Drifted: {', '.join(drifted)}." if drifted else told],
        sections=[
            Section("Comparisons", warnings, [Table("", _HEADER, _rows(findings))]),
            *map(_make_section, findings),
        ],
        command=command,
    )


def _make_section(finding: DriftFinding) -> Section:
    live, baseline = finding.live, finding.baseline
    shown = [_describe(live), {} if baseline is None else _describe(baseline)]
    rows = [(name, value, shown[1].get(name, "-")) for name, value in shown[0].items()]
    shares = Table("Share of turns by percentile", _SHARES, rows[:BINS])
    others = Table("What else was counted", _SHARES, rows[BINS:])
    return Section(f"{live.scorer}: {live.model}", tables=[shares, others])


def _describe(values: LiveValues) -> dict[str, str]:
    """The share of each bin, then what else was counted."""
    return {
        **{f"up to {bin_name(place)}": f"{share:.1%}" for place, share in enumerate(find_shares(values.bins))},
        "labelled turns that are low": _share(values.low, values.labelled),
        "turns that were not read whole": _share(values.cut, values.turns),
        "turns hardly in the model's language": _share(values.foreign, values.turns),
        "turns whose score is not a number": _share(values.not_computable, values.turns + values.not_computable),
        "tokens per character": f"{values.tokens / values.chars:.3f}" if values.chars else "-",
    }


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def make_rules(baseline: Iterable[LiveValues]) -> str:
    """The baseline as recording rules: the drift rules of deploy/observability compare with these series."""
    lines = ["groups:", "  - name: turnscore-baseline", "    rules:"]
    for each in baseline:
        if any(each.bins):
            labels = {"scorer": each.scorer, "model": each.model}
            lines += _rule("turnscore:baseline_dialogues", each.dialogues, labels)
            for place, share in enumerate(find_shares(each.bins)):
                lines += _rule("turnscore:baseline_share", share, {**labels, "bin": bin_name(place)})
    return "\n".join(lines) + "\n"


def bin_name(place: int) -> str:
    """A bin's label: the percentile that it goes up to."""
    return str(100 * (place + 1) // BINS)


def _rule(record: str, value: float, labels: dict[str, str]) -> list[str]:
    named = ", ".join(f"{name}: {json.dumps(value)}" for name, value in labels.items())
    return [f"      - record: {record}", f"        expr: vector({value:.10g})", f"        labels: {{{named}}}"]


def _rows(findings: Iterable[DriftFinding]) -> list[tuple[str, ...]]:
    return [
        (
            *(each.live.scorer, each.live.model, compared.against),
            *(f"{count:,.0f}" for count in (each.live.dialogues, each.live.turns)),
            *(f"{index:.4f}" for index in (compared.index, compared.limit)),
            compared.verdict,
        )
        for each in findings
        for compared in each.comparisons
    ]


_PREFIX = "turnscore_shadow_"
# Series that add up over replicas and windows.
TOTALS = tuple(
    f"{_PREFIX}{name}"
    for name in ("turns_total", "percentiles_total", "labels_total", "cpu_seconds_total", "percentile_shift_bucket")
)
CORRELATION = f"{_PREFIX}rank_correlation"  # The series whose least value counts.
FAR = 10  # Difference of percentiles that counts as far; a bound of the metric's buckets.


def _zeros() -> Any:
    return defaultdict(float)


@dataclass(kw_only=True)
class ShadowValues:
    """Counts of one scorer's shadow of one served version; floats, because Prometheus extrapolates."""

    scorer: str
    model: str
    served: str
    turns: dict[str, float] = field(default_factory=_zeros)  # By outcome: compared, failed, full, late.
    percentiles: dict[str, float] = field(default_factory=_zeros)  # Sums by version: served, shadow.
    # Turns by the served version's label and the shadow's.
    labels: dict[tuple[str, str], float] = field(default_factory=_zeros)
    shifts: dict[float, float] = field(default_factory=_zeros)  # Turns whose percentiles differ by at most the key.
    cpu_seconds: float = 0.0
    correlation: float | None = None

    @property
    def compared(self) -> float:
        """Turns that both versions scored."""
        return self.turns["compared"]

    @property
    def dropped(self) -> float:
        """Turns that were dropped: no room or time."""
        return self.turns["full"] + self.turns["late"]

    @property
    def mean_shift(self) -> float:
        """Mean percentile of the shadow minus that of the served version."""
        return (self.percentiles["shadow"] - self.percentiles["served"]) / self.compared

    @property
    def far_share(self) -> float:
        """Share of compared turns whose percentiles differ by more than `FAR`."""
        every = self.shifts[math.inf]
        return max(0.0, 1 - self.shifts[FAR] / every) if every else math.nan

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
        interval = scipy.stats.binomtest(flips, max(flips, round(self.labelled))).proportion_ci(method="wilson")
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
        values.turns[labels.get("outcome", "")] += value
    elif name == "percentiles_total":
        values.percentiles[labels.get("by", "")] += value
    elif name == "labels_total":
        values.labels[labels.get("served_label", ""), labels.get("shadow_label", "")] += value
    elif name == "percentile_shift_bucket":
        values.shifts[float(labels["le"])] += value
    elif name == "cpu_seconds_total":
        values.cpu_seconds += value
    elif series == CORRELATION:
        values.correlation = value if values.correlation is None else min(values.correlation, value)


def build_shadow_page(found: Sequence[ShadowValues], command: str) -> Page:
    """For each candidate what would change, and every pair of labels."""
    sections = []
    for each in found:
        counts = [(*pair, f"{count:,.0f}") for pair, count in sorted(each.labels.items()) if count >= 1]
        tables = [Table(_name(each), ("", "figure"), _figures(each)), Table("Labels", _LABELS, counts)]
        sections.append(Section(_name(each), tables=tables))
    summary = [f"{_name(each)}: {each.compared:,.0f} turns compared." for each in found]
    summary += [
        f"warning: {each.model} was served while its shadow ran: if it still is, remove it from TURNSCORE_SHADOW."
        for each in found
        if each.model == each.served
    ]
    return Page(title="Shadows", summary=summary, sections=sections, command=command)


_LABELS = ("served", "shadow", "turns")


def _name(values: ShadowValues) -> str:
    return f"{values.model} compared with {values.served}"


def _figures(values: ShadowValues) -> list[tuple[str, str]]:
    turns, labelled = values.compared, values.labelled
    flips = "-"
    if labelled >= 1:
        low, high = values.flip_interval()
        flips = f"{values.flipped() / labelled:.1%} ({low:.1%} to {high:.1%})"
    correlation = "fewer than 30 turns" if values.correlation is None else f"{values.correlation:.3f}"
    return [
        ("turns compared", f"{turns:,.0f}"),
        ("turns dropped, as no moment was idle", f"{values.dropped:,.0f}"),
        ("turns failed", f"{values.turns['failed']:,.0f}"),
        ("mean percentile, the shadow's less the served version's", f"{values.mean_shift:+.2f}"),
        (f"turns whose percentiles differ by more than {FAR}", f"{values.far_share:.1%}"),
        ("rank correlation, latest turns", correlation),
        ("labels that flip, with Wilson's interval", flips),
        *((f"become {label}", f"{values.flipped(label):,.0f}") for label in ("low", "fair", "good")),
        ("CPU per compared turn", f"{1000 * values.cpu_seconds / turns:.1f} ms"),
    ]
