"""Measurement: the correlations of every score and baseline with people's judgements, by system. Prints nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnscore_assessment.agreement.bootstrap import Correlations, correlate
from turnscore_assessment.agreement.observations import Column, Observations

ALL_SYSTEMS = "all"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; baselines have nothing in `figures.given`."""

    name: str
    is_baseline: bool
    observations: int
    """The observations with both a judgement and a score."""
    figures: Correlations


@dataclass(frozen=True, kw_only=True)
class Group:
    """One system's dialogues, or those of all."""

    system: str
    observations: int
    dialogues: int
    rows: Sequence[Row]


def measure(observations: Observations, rounds: int, seed: int) -> list[Group]:
    """All figures of one level: all systems together first, then each where the file names more than one."""
    systems = np.array([system or "" for system in observations.systems])
    groups = [_measure_group(observations, ALL_SYSTEMS, np.full(len(systems), True), rounds, seed)]
    names = np.unique(systems)
    if len(names) > 1:
        groups += [
            _measure_group(observations, str(name) or "(unnamed)", systems == name, rounds, seed) for name in names
        ]
    return groups


def _measure_group(observations: Observations, system: str, chosen: NDArray[np.bool_], rounds: int, seed: int) -> Group:
    dialogues = len(np.unique(observations.dialogue_of[chosen]))
    rows = [_measure_row(observations, column, chosen, rounds, seed) for column in observations.columns]
    return Group(system=system, observations=int(chosen.sum()), dialogues=dialogues, rows=rows)


def _measure_row(observations: Observations, column: Column, chosen: NDArray[np.bool_], rounds: int, seed: int) -> Row:
    kept = chosen & ~np.isnan(column.values)
    baselines = {} if column.is_baseline else {each.name: each.values for each in observations.baselines}
    figures = correlate(
        column.values[kept],
        observations.qualities[kept],
        {name: values[kept] for name, values in baselines.items()},
        observations.dialogue_of[kept],
        rounds,
        seed,
    )
    return Row(name=column.name, is_baseline=column.is_baseline, observations=int(kept.sum()), figures=figures)
