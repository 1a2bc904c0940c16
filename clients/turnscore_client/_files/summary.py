"""The summary of a scored file: means with intervals, shares of low turns, worst dialogues, what failed. No text."""

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from turnscore_client._files.rows import failures_in, is_blank, turns_in

_Z = 1.96
"""Of a 95 % interval, by the normal distribution."""
_WORST = 5


@dataclass(slots=True)
class ClusteredMean:
    """A mean over turns whose interval counts dialogues: turns of one dialogue are alike.

    The ratio estimator with its linearized variance (Cochran, Sampling Techniques, 1977, 6.3).
    """

    clusters: int = 0
    count: int = 0
    total: float = 0.0
    _squares: float = 0.0
    _products: float = 0.0
    _counts: float = 0.0

    def add(self, values: list[float]) -> None:
        """Adds the turns of one dialogue."""
        if values:
            total, count = sum(values), len(values)
            self.clusters += 1
            self.count += count
            self.total += total
            self._squares += total * total
            self._products += total * count
            self._counts += count * count

    @property
    def mean(self) -> float:
        """Over all turns."""
        return self.total / self.count

    def interval(self) -> tuple[float, float] | None:
        """Of 95 %; None for less than two dialogues."""
        if self.clusters < 2:
            return None
        spread = self._squares - 2 * self.mean * self._products + self.mean**2 * self._counts
        error = math.sqrt(max(0.0, spread) * self.clusters / (self.clusters - 1)) / self.count
        return self.mean - _Z * error, self.mean + _Z * error


@dataclass
class _Scorer:
    value: ClusteredMean = field(default_factory=ClusteredMean)
    percentile: ClusteredMean = field(default_factory=ClusteredMean)
    low: ClusteredMean = field(default_factory=ClusteredMean)
    models: set[str] = field(default_factory=set)


@dataclass
class Summary:
    """Counts rows as they come, in memory that does not grow with them."""

    rows: int = 0
    failed: int = 0
    in_part: int = 0
    blank: int = 0
    first_failure: str = ""
    scorers: dict[str, _Scorer] = field(default_factory=dict)
    _worst: list[tuple[float, int, str]] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        """Counts one row."""
        self.rows += 1
        failures = failures_in(row)
        if failures:
            self.first_failure = self.first_failure or f"line {row['line']}: {failures[0]}"
            self.failed += "error" in row
            self.in_part += "error" not in row
        self.blank += sum(isinstance(turn, dict) and is_blank(turn.get("error") or {}) for turn in turns_in(row))
        found: dict[str, list[Mapping[str, Any]]] = {}
        for scores in _scores_in(row):
            for name, score in scores.items():
                found.setdefault(name, []).append(score)
        for name, scores_of_one in found.items():
            self._add_scores(self.scorers.setdefault(name, _Scorer()), scores_of_one)
        self._note_worst(row, found)

    def exit_code(self) -> int:
        """0 where everything was scored, else 1."""
        return 1 if self.failed or self.in_part else 0

    def text(self, seconds: float) -> str:
        """Some lines for a person."""
        lines = [f"scored {self.rows - self.failed} of {self.rows} lines in {seconds:.1f} s{self._failures()}"]
        lines += [self._describe(name, scorer) for name, scorer in self.scorers.items()]
        if self.blank:
            lines.append(f"{self.blank} turns in which the system said nothing are not scored")
        if worst := sorted(self._worst, reverse=True):
            named = ", ".join(f"line {-number}{name} ({-mean:.0f})" for mean, number, name in worst)
            lines.append(f"lowest mean percentiles: {named}")
        return "\n".join(lines)

    def _failures(self) -> str:
        counts = [f"{count} {what}" for count, what in ((self.failed, "failed"), (self.in_part, "in part")) if count]
        return f"; {', '.join(counts)}, the first: {self.first_failure}" if counts else ""

    def _describe(self, name: str, scorer: _Scorer) -> str:
        parts = [f"{name}: {scorer.value.count} turns", f"mean {_with_interval(scorer.value, 3)}"]
        if scorer.percentile.count:
            parts.append(f"percentile {_with_interval(scorer.percentile, 1)}")
        if scorer.low.count:
            parts.append(f"low {_with_interval(scorer.low, 1, 100)} %")
        if len(scorer.models) > 1:
            parts.append(f"by {len(scorer.models)} models: {', '.join(sorted(scorer.models))}")
        return ", ".join(parts)

    def _add_scores(self, scorer: _Scorer, scores: list[Mapping[str, Any]]) -> None:
        scorer.value.add([score["value"] for score in scores])
        scorer.percentile.add([score["percentile"] for score in scores if score.get("percentile") is not None])
        scorer.low.add([float(score["label"] == "low") for score in scores if score.get("label")])
        scorer.models.update(str(score.get("model")) for score in scores)

    def _note_worst(self, row: Mapping[str, Any], found: Mapping[str, list[Mapping[str, Any]]]) -> None:
        """By the mean percentile of quality where it was asked, else of all scorers."""
        asked = [found["quality"]] if "quality" in found else list(found.values())
        known = [score["percentile"] for scores in asked for score in scores if score.get("percentile") is not None]
        if known:
            name = f" {row['id']}" if isinstance(row.get("id"), int | str) else ""
            entry = (-fmean(known), -int(row["line"]), name[:60])
            if len(self._worst) < _WORST:
                heapq.heappush(self._worst, entry)
            else:
                heapq.heappushpop(self._worst, entry)


def _scores_in(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "error" in row:
        return
    if isinstance(scores := row.get("scores"), dict):
        yield scores
        return
    for turn in turns_in(row):
        if isinstance(turn, dict) and isinstance(scores := turn.get("scores"), dict):
            yield scores


def _with_interval(mean: ClusteredMean, digits: int, factor: int = 1) -> str:
    shown = f"{factor * mean.mean:.{digits}f}"
    interval = mean.interval()
    if interval is None:
        return shown
    low, high = (factor * each for each in interval)
    return f"{shown} [{low:.{digits}f}, {high:.{digits}f}]"
