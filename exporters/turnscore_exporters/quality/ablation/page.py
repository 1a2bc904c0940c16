"""The table of an ablation: a row for the whole mix, and one for each kind that was left out. Measures nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from turnscore_assessment.markdown import table_head, table_row

from turnscore_exporters.quality.negatives import NegativeKind

ALL_KINDS = "all kinds"
HEAD_OF: Mapping[NegativeKind, str] = {
    NegativeKind.DULL: "engaging",
    NegativeKind.GARBLED: "sound",
    NegativeKind.BABBLE: "sound",
    NegativeKind.WRONG_MOOD: "sentiment",
    NegativeKind.HOSTILE: "sentiment",
}
"""The head that should say what is wrong with a kind; `relevant` for the others."""


@dataclass(frozen=True)
class RunFigures:
    """The figures of one run: by set, by kind of negatives, and by kind that the model separates."""

    without: NegativeKind | None
    seed: int
    figures: Mapping[str, Mapping[str, float]]

    @property
    def agreement(self) -> dict[str, float]:
        """Of the value with people, by set and their mean, and the accuracies of `relevant`."""
        by_set = dict(self.figures["agreement"])
        return {**by_set, "mean": float(np.mean(list(by_set.values()))), **self.figures["accuracy"]}

    def told_apart(self, kind: NegativeKind) -> tuple[float, float]:
        """The kind from real responses: by the value, and by the head that should say why."""
        return self._separation(kind, "value"), self._separation(kind, HEAD_OF.get(kind, "relevant"))

    def _separation(self, kind: NegativeKind, part: str) -> float:
        return self.figures[f"separated by {part}"].get(kind.value, float("nan"))


def format_runs(runs: Sequence[RunFigures]) -> str:
    """Markdown: the mean of the runs with all kinds, how far they lie apart, and each kind's run beside them."""
    whole = [run for run in runs if run.without is None]
    names = list(whole[0].agreement)
    seen = {name: [run.agreement[name] for run in whole] for name in names}
    header = ["", *names, "the kind by value", "by its head"]
    lines = table_head(header)
    lines.append(
        table_row([f"{ALL_KINDS}, mean of {len(whole)}", *(_figure(np.mean(seen[name])) for name in names), "", ""])
    )
    lines.append(table_row(["largest less smallest", *(_figure(np.ptp(seen[name])) for name in names), "", ""]))
    for run in runs:
        if run.without is not None:
            cells = [_figure(run.agreement[name]) for name in names]
            lines.append(table_row([f"without {run.without}", *cells, *_compare(run, run.without, whole)]))
    return "\n".join(lines)


def _compare(run: RunFigures, kind: NegativeKind, whole: Sequence[RunFigures]) -> list[str]:
    """With the kind, and without it."""
    before = np.mean([other.told_apart(kind) for other in whole], axis=0)
    head = HEAD_OF.get(kind, "relevant")
    pairs = [f"{_figure(old)} -> {_figure(new)}" for old, new in zip(before, run.told_apart(kind), strict=True)]
    return [pairs[0], f"{head} {pairs[1]}"]


def _figure(value: float | np.floating) -> str:
    return f"{float(value):.3f}".replace("0.", ".", 1)
