"""How many dialogues decide whether two systems differ: from a difference, its spread, a level and a power."""

import math

from scipy import stats

MOST_DIALOGUES = 1_000_000
"""Most dialogues: a difference that needs more is reported as too small to look for. Chosen."""
LEVEL = 0.05
POWER = 0.8


def find_power(difference: float, spread: float, dialogues: int, *, paired: bool, level: float = LEVEL) -> float:
    """The share of studies, with so many dialogues per system, in which a two-sided t-test finds the difference.

    `spread` is the standard deviation of a pair's difference, or of one dialogue within a system (both alike).
    """
    freedom = dialogues - 1 if paired else 2 * dialogues - 2
    shift = abs(difference) / spread * math.sqrt(dialogues if paired else dialogues / 2)
    edge = float(stats.t.ppf(1 - level / 2, freedom))
    if freedom > 10_000:  # the non-central t is then the normal to four digits, and slow
        return float(stats.norm.sf(edge - shift) + stats.norm.cdf(-edge - shift))
    return float(stats.nct.sf(edge, freedom, shift) + stats.nct.cdf(-edge, freedom, shift))


def find_needed_dialogues(
    difference: float, spread: float, *, paired: bool, level: float = LEVEL, power: float = POWER
) -> int | None:
    """The fewest dialogues of each system with that power; None above MOST_DIALOGUES."""
    if spread <= 0:
        return 2 if difference else None
    if not difference:
        return None
    quantiles = float(stats.norm.ppf(1 - level / 2) + stats.norm.ppf(power))
    normal = (1 if paired else 2) * (quantiles * spread / abs(difference)) ** 2
    if normal > MOST_DIALOGUES:
        return None
    needed = max(2, math.ceil(normal))
    while find_power(difference, spread, needed, paired=paired, level=level) < power:
        needed += 1
    return needed if needed <= MOST_DIALOGUES else None


def find_smallest_difference(
    spread: float, dialogues: int, *, paired: bool, level: float = LEVEL, power: float = POWER
) -> float:
    """The difference that so many dialogues of each system show with that power."""
    freedom = dialogues - 1 if paired else 2 * dialogues - 2
    quantiles = float(stats.t.ppf(1 - level / 2, freedom) + stats.t.ppf(power, freedom))
    return quantiles * spread * math.sqrt((1 if paired else 2) / dialogues)
