"""Confidence sequences: intervals for a mean that hold at every look at once, whenever one stops looking.

`BettingSequence` holds for any number of bounded observations (Waudby-Smith & Ramdas, "Estimating means of bounded
random variables by betting", JRSS B 86, 2024: hedged capital). `AsymptoticSequence` needs no bounds and holds from some
tens of observations on (Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, "Time-uniform central limit theory and
asymptotic confidence sequences", Annals of Statistics 52, 2024: the normal mixture). Both assume that each observation
has the same mean given those before it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turnscore_assessment.figures import Floats

CANDIDATES = 2001
"""Means that the betting sequence tries. Chosen: the interval is rounded outwards by at most .05 % of the range."""
BOLDEST_BET = 0.5
"""Share of the capital that one observation may take. The paper's own choice (its c)."""
BURN_IN = 30
"""Fewest observations for the asymptotic sequence. Chosen: with fewer, the variance of ratings is hardly known."""
TIGHTEST_AT = 200
"""Observations at which the asymptotic sequence is tightest. Chosen: the size of a usual study."""


@dataclass(frozen=True, kw_only=True)
class FollowedMean:
    """The state after each observation: the interval never widens, and `p_value` never rises.

    `p_value` is that of the mean `null`, valid at every look and at any stop.
    """

    low: Floats
    high: Floats
    p_value: Floats
    null: float

    @property
    def decided_at(self) -> int | None:
        """The number of observations after which the interval first excludes `null`; None where it never does."""
        outside = np.flatnonzero((self.low > self.null) | (self.high < self.null))
        return int(outside[0]) + 1 if len(outside) else None


@dataclass(frozen=True, kw_only=True)
class BettingSequence:
    """Holds for any number of observations between `lowest` and `highest`, from the first on."""

    lowest: float
    highest: float
    alpha: float = 0.05

    def follow(self, observations: ArrayLike, null: float = 0.0) -> FollowedMean:
        """The interval after each observation. ValueError where one, or the null, lies outside the bounds."""
        p_values = self.follow_p(observations, null)
        span = self.highest - self.lowest
        scaled = self._scale(observations)
        low, high = self._bounds(scaled, self._bets(scaled))
        return FollowedMean(low=self.lowest + span * low, high=self.lowest + span * high, p_value=p_values, null=null)

    def follow_p(self, observations: ArrayLike, null: float = 0.0) -> Floats:
        """The p-value after each observation alone, which costs a thousandth of the interval."""
        if not self.lowest < null < self.highest:
            raise ValueError(f"the null {null:g} lies outside {self.lowest:g} to {self.highest:g}")
        scaled = self._scale(observations)
        wealth = _hedged_wealth(scaled, self._bets(scaled), (null - self.lowest) / (self.highest - self.lowest))
        return np.asarray(np.exp(-np.maximum.accumulate(np.maximum(wealth, 0.0))))

    def _scale(self, observations: ArrayLike) -> Floats:
        values = np.asarray(observations, dtype=np.float64)
        if not np.all((values >= self.lowest) & (values <= self.highest)):
            raise ValueError(f"an observation lies outside {self.lowest:g} to {self.highest:g}")
        return np.asarray((values - self.lowest) / (self.highest - self.lowest))

    def _bets(self, scaled: Floats) -> Floats:
        """The paper's predictable plug-in bets: each is made from the observations before it."""
        count = np.arange(1, len(scaled) + 1)
        means = (0.5 + np.cumsum(scaled)) / (count + 1)
        variances = (0.25 + np.cumsum((scaled - means) ** 2)) / (count + 1)
        before = np.concatenate([[0.25], variances[:-1]]) if len(scaled) else variances
        return np.asarray(np.sqrt(2 * math.log(2 / self.alpha) / (before * count * np.log(count + 1))))

    def _bounds(self, scaled: Floats, bets: Floats) -> tuple[Floats, Floats]:
        """The candidates that are not bankrupt after each observation, with their neighbours."""
        candidates = np.linspace(0.0, 1.0, CANDIDATES)
        rising, falling = np.zeros(CANDIDATES), np.zeros(CANDIDATES)
        is_alive = np.ones(CANDIDATES, dtype=bool)
        limit = math.log(1 / self.alpha)
        bounds = np.empty((2, len(scaled)))
        with np.errstate(divide="ignore"):
            up_cap, down_cap = BOLDEST_BET / candidates, BOLDEST_BET / (1 - candidates)
        for place, (value, bet) in enumerate(zip(scaled, bets, strict=True)):
            rising += np.log1p(np.minimum(bet, up_cap) * (value - candidates))
            falling += np.log1p(-np.minimum(bet, down_cap) * (value - candidates))
            is_alive &= np.maximum(rising, falling) - math.log(2) < limit
            alive = np.flatnonzero(is_alive)
            if len(alive):
                bounds[:, place] = max(alive[0] - 1, 0), min(alive[-1] + 1, CANDIDATES - 1)
            else:
                bounds[:, place] = bounds[:, place - 1].mean()
        return bounds[0] / (CANDIDATES - 1), bounds[1] / (CANDIDATES - 1)


def _hedged_wealth(scaled: Floats, bets: Floats, mean: float) -> Floats:
    """Logarithm of half the larger capital of two gamblers, one who bets on a higher mean, one on a lower."""
    rising = np.cumsum(np.log1p(np.minimum(bets, BOLDEST_BET / mean) * (scaled - mean)))
    falling = np.cumsum(np.log1p(-np.minimum(bets, BOLDEST_BET / (1 - mean)) * (scaled - mean)))
    return np.asarray(np.maximum(rising, falling) - math.log(2))


@dataclass(frozen=True, kw_only=True)
class AsymptoticSequence:
    """Holds asymptotically, from `burn_in` observations on; unbounded before. Needs no bounds."""

    alpha: float = 0.05
    burn_in: int = BURN_IN
    tightest_at: int = TIGHTEST_AT

    def follow(self, observations: ArrayLike, null: float = 0.0) -> FollowedMean:
        """The interval after each observation, the running intersection of those so far."""
        count, means, spreads = _run(observations)
        half = np.where(count >= self.burn_in, spreads * self._margins(count), np.inf)
        return FollowedMean(
            low=np.maximum.accumulate(means - half),
            high=np.minimum.accumulate(means + half),
            p_value=self.follow_p(observations, null),
            null=null,
        )

    def follow_p(self, observations: ArrayLike, null: float = 0.0) -> Floats:
        """The p-value after each observation; 1 before `burn_in`."""
        count, means, spreads = _run(observations)
        p_values = np.where(count >= self.burn_in, self._p_values(means - null, spreads, count), 1.0)
        return np.asarray(np.minimum.accumulate(p_values))

    @property
    def _mixture(self) -> float:
        """The variance of the normal mixture (rho squared) that is tightest at `tightest_at`."""
        double = -2 * math.log(self.alpha)
        return (double + math.log(double) + 1) / self.tightest_at

    def _margins(self, count: NDArray[np.intp]) -> Floats:
        """Half the interval's width after each count, in standard deviations."""
        grown = count * self._mixture + 1
        return np.asarray(np.sqrt(2 * grown / (count**2 * self._mixture) * np.log(np.sqrt(grown) / self.alpha)))

    def _p_values(self, distances: Floats, spreads: Floats, count: NDArray[np.intp]) -> Floats:
        """The alpha at which the null would lie on the interval's edge; the mixture is the same."""
        grown = count * self._mixture + 1
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(distances == 0, 0.0, distances / spreads)
        exponents = steps**2 * count**2 * self._mixture / (2 * grown)
        return np.asarray(np.minimum(1.0, np.sqrt(grown) * np.exp(-exponents)))


def _run(observations: ArrayLike) -> tuple[NDArray[np.intp], Floats, Floats]:
    """The number of observations, their mean and their standard deviation after each."""
    values = np.asarray(observations, dtype=np.float64)
    count = np.arange(1, len(values) + 1)
    shifted = values - values[:1]  # else the variance of large numbers is rounding
    means = np.cumsum(shifted) / count
    spreads = np.sqrt(np.maximum(np.cumsum(shifted**2) / count - means**2, 0.0))
    return count, means + values[:1], spreads
