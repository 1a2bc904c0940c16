"""The page: every figure as Markdown tables, published figures beside. Measures nothing."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnscore_core.loaded_scorer import LoadedScorer

from turnscore_assessment.agreement.report import NOTHING, format_interval
from turnscore_assessment.agreement_table.columns import SLOW, ScoredSet
from turnscore_assessment.agreement_table.judged_sets import TURNS
from turnscore_assessment.agreement_table.measures import ALL, Figures, SystemFigures
from turnscore_assessment.agreement_table.relevance import Accuracy
from turnscore_assessment.agreement_table.trained_baselines import MARK, read_trained_baselines
from turnscore_assessment.figures import CONFIDENCE
from turnscore_assessment.rendering import table_head, table_row

FITTED = "(fitted on)"
"""Ends the name of a set that quality's value is fitted on."""
PUBLISHED = Path(__file__).with_name("published.json")


@dataclass(frozen=True, kw_only=True)
class MeasuredSet:
    """A set with its figures by system and column, and by column those of the systems' order."""

    scored: ScoredSet
    groups: Mapping[str, Mapping[str, Figures]]
    people_order: Sequence[str]
    systems: Mapping[str, SystemFigures]

    @property
    def name(self) -> str:
        return self.scored.judged.name


@dataclass(frozen=True, kw_only=True)
class TablePage:
    command: str
    date: str
    rounds: int
    seed: int
    slow_turns: int
    scorers: Sequence[LoadedScorer]
    sets: Sequence[MeasuredSet]
    relevance: Sequence[Accuracy]

    def format(self) -> str:
        """The page; between equal runs only its date differs."""
        published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
        parts = [self._introduction(), *_summary(self.sets)]
        for measured in self.sets:
            if not measured.name.endswith(FITTED):
                parts += _set_section(measured)
        parts += _systems_section(self.sets)
        parts += _relevance_section(self.relevance)
        parts += _published_section(published)
        return "\n".join(parts) + "\n"

    def _introduction(self) -> str:
        models = ", ".join(
            f"`{each.bundle.manifest.reference}` ({each.variant}, {each.bundle.digest[:12]})" for each in self.scorers
        )
        asked = f" {SLOW} is asked about {self.slow_turns} turns a set, of dialogues drawn at random." * any(
            each.name == SLOW for each in self.scorers
        )
        return (
            "# Agreement of every scorer with people, on the development sets\n\n"
            f"Written by `{self.command}` on {self.date}; [agreement.md](agreement.md) says how to read it. Measured "
            f"is what the service computes with the graph named: {models}.{asked} Behind a figure stands its "
            f"{CONFIDENCE:.0%} interval from {self.rounds} resamples of whole dialogues (seed {self.seed}). Models "
            "were chosen by these sets, and quality's value was fitted to the parts `(fitted on)`: only sets that "
            "nobody tuned to show what a scorer is worth elsewhere."
        )


def _summary(sets: Sequence[MeasuredSet]) -> list[str]:
    """Every score on every set, and its mean over those of graded turns that nothing is fitted on."""
    names = list(dict.fromkeys(name for each in sets for name in each.groups[ALL]))
    averaged = [each for each in sets if _is_averaged(each)]
    header = ["score", *(f"{each.name}{', AUC' * each.scored.judged.is_binary}" for each in sets), "mean"]
    lines = ["", "## All sets", ""]
    lines += [
        "Spearman's rho, or where people said good or bad the area under the ROC curve. The mean is that of rho over "
        f"{', '.join(each.name for each in averaged)}. Sets {FITTED} stand in this table alone.",
        "",
    ]
    lines += table_head(header)
    for name in names:
        cells = [_number(_agreement(each, name)) for each in sets]
        mean = sum(_agreement(each, name) for each in averaged) / len(averaged) if averaged else math.nan
        lines.append(table_row([name, *cells, _number(mean)]))
    return lines + _baseline_rows(sets, averaged)


def _baseline_rows(sets: Sequence[MeasuredSet], averaged: Sequence[MeasuredSet]) -> list[str]:
    """The papers' other systems on the same sets, where they were trained."""
    trained = read_trained_baselines().of({each.name: len(each.scored.judged.items) for each in sets})
    lines = []
    for name in trained.names:
        cells = [_number(trained.agreement(each.name, name)) for each in sets]
        mean = sum(trained.agreement(each.name, name) for each in averaged) / len(averaged) if averaged else math.nan
        lines.append(table_row([f"{name} {MARK}", *cells, _number(mean)]))
    return [*lines, "", trained.note] if lines else []


def _is_averaged(each: MeasuredSet) -> bool:
    judged = each.scored.judged
    return judged.unit == TURNS and not judged.is_binary and not each.name.endswith(FITTED)


def _agreement(each: MeasuredSet, name: str) -> float:
    figures = each.groups[ALL].get(name)
    return math.nan if figures is None else figures.agreement.value


def _set_section(measured: MeasuredSet) -> list[str]:
    judged = measured.scored.judged
    dialogues = len({item.dialogue for item in judged.items})
    kind = "AUC" if judged.is_binary else "Spearman"
    lines = [
        "",
        f"## {judged.name}",
        "",
        f"{len(judged.items)} {judged.unit}, {dialogues} dialogues. {judged.note}".strip(),
    ]
    header = ["score", "n", kind, "Pearson", "Spearman given length"]
    lines += ["", *table_head(header)]
    for name, figures in measured.groups[ALL].items():
        intervals = (figures.agreement, figures.pearson, figures.given_length)
        lines.append(table_row([_name(measured, name), str(figures.items), *map(format_interval, intervals)]))
    apart = [name for name in measured.groups if name != ALL]
    if apart:
        header = [f"{kind} by system", *apart]
        lines += ["", *table_head(header)]
        for name in measured.groups[ALL]:
            cells = [format_interval(measured.groups[system][name].agreement) for system in apart]
            lines.append(table_row([_name(measured, name), *cells]))
    return lines


def _systems_section(sets: Sequence[MeasuredSet]) -> list[str]:
    lines: list[str] = []
    for measured in sets:
        if not measured.systems:
            continue
        count = len(measured.people_order)
        lines += ["", f"## The {count} systems of {measured.name}", ""]
        lines += [
            f"Means over a system's dialogues. People's order, best first: {' > '.join(measured.people_order)}.",
            "",
        ]
        header = ["score", "Pearson", "Spearman", "its order"]
        lines += table_head(header)
        for name, figures in measured.systems.items():
            intervals = map(format_interval, (figures.pearson, figures.spearman))
            lines.append(table_row([_name(measured, name), *intervals, " > ".join(figures.order) or NOTHING]))
    return lines


def _relevance_section(found: Sequence[Accuracy]) -> list[str]:
    if not found:
        return []
    lines = ["", "## adversarial_responses", ""]
    lines += [
        "Accuracy of quality's `relevant` at 0.5, both classes counting alike; intervals from resampled contexts.",
        "",
    ]
    header = ["split", "against", "contexts", "accuracy"]
    lines += table_head(header)
    return lines + [table_row([each.split, each.negatives, str(each.contexts), str(each.accuracy)]) for each in found]


def _published_section(published: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    titles = {
        "beside": "Published figures on these sets",
        "elsewhere": "Published figures on sets that are held back here",
    }
    lines: list[str] = []
    for part, title in titles.items():
        header = ["set", "figure", "published", "source"]
        lines += ["", f"## {title}", "", *table_head(header)]
        for row in published[part]:
            figures = "; ".join(f"{system} {_published(value)}" for system, value in row["systems"].items())
            name = f"{row['set']} ({row['note']})" if "note" in row else row["set"]
            lines.append(table_row([name, row["figure"], figures, row["source"]]))
    return lines


def _published(value: float | Sequence[float]) -> str:
    values: Iterator[float] = iter([value] if isinstance(value, int | float) else value)
    return " / ".join(f"{each:.3f}".rstrip("0") if each else "0" for each in values)


def _name(measured: MeasuredSet, name: str) -> str:
    return f"*{name}*" if name in measured.scored.baselines else name


def _number(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.3f}"
