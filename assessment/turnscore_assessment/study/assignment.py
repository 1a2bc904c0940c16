"""Assignment: the dialogues that a worker is to rate, in random order. Blind, and balanced over workers."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from turnscore_assessment.study.plan import StudyPlan, SystemPlan

Thing = TypeVar("Thing")


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """One dialogue that a worker is to rate."""

    system: str
    degraded: bool
    recorded: str | None
    topic: str | None


def assign_dialogues(
    plan: StudyPlan,
    recordings: Mapping[str, Sequence[str]],
    met: Mapping[tuple[str, str | None], int],
    generator: random.Random,
) -> list[Assigned]:
    """A worker's dialogues in order.

    All degraded systems are among them, and of the others those that were assigned least often, ties broken at random;
    likewise of a system's recorded dialogues (`recordings`, names by system). `met` counts the other workers'
    assignments by system and recorded dialogue.
    """
    by_system: Counter[str] = Counter()
    for (system, _), count in met.items():
        by_system[system] += count
    ordinary = [system for system in plan.systems if not system.degraded]
    chosen = _take_least(ordinary, plan.systems_per_worker, lambda system: by_system[system.name], generator)
    chosen += [system for system in plan.systems if system.degraded]
    assigned = [each for system in chosen for each in _assign_system(plan, system, recordings, met, generator)]
    generator.shuffle(assigned)
    return assigned


def _assign_system(
    plan: StudyPlan,
    system: SystemPlan,
    recordings: Mapping[str, Sequence[str]],
    met: Mapping[tuple[str, str | None], int],
    generator: random.Random,
) -> list[Assigned]:
    count = plan.dialogues_per_system
    if plan.kind == "recorded":
        names: Sequence[str | None] = _take_least(
            recordings[system.name], count, lambda name: met.get((system.name, name), 0), generator
        )
    else:
        names = [None] * count
    topics = plan.chat.topics if plan.kind == "chat" else ()
    return [
        Assigned(
            system=system.name,
            degraded=system.degraded,
            recorded=name,
            topic=generator.choice(topics) if topics else None,
        )
        for name in names
    ]


def _take_least(
    things: Sequence[Thing], count: int | None, measure: Callable[[Thing], int], generator: random.Random
) -> list[Thing]:
    shuffled = list(things)
    generator.shuffle(shuffled)
    return sorted(shuffled, key=measure)[:count]
