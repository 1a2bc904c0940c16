"""Sequential comparison: a verdict at each look while ratings or scores come in, at the same rate of false alarms.

Of ratings, one observation is one worker's: the mean rating of A's dialogues minus that of B's, in the first HIT that
rates both. A worker's later HITs are left out, as they repeat the worker's opinion. Where no worker rated both, the
workers of each system are paired in the order in which they came. Of scores, it is a pair of dialogues.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from turnscore_assessment.comparison.comparison import ScoreFile, choose_names, pair_dialogues
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import Floats, Integers
from turnscore_assessment.ratings.rating_file import COMMON_HIGH, COMMON_LOW, OVERALL, RatingFile, build_table
from turnscore_assessment.ratings.scoring import check_pair, choose_column, control_quality

# Means that the betting sequence tries. Chosen: the interval is rounded outwards by at most .05 % of the range.
CANDIDATES = 2001
BOLDEST_BET = 0.5  # Share of the capital that one observation may take. The paper's own choice (its c).


@dataclass(frozen=True)
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
        return FollowedMean(self.lowest + span * low, self.lowest + span * high, p_values, null)

    def follow_p(self, observations: ArrayLike, null: float = 0.0) -> Floats:
        """The p-value after each observation alone, which costs a thousandth of the interval."""
        if not self.lowest < null < self.highest:
            raise ValueError(f"the null {null:g} lies outside {self.lowest:g} to {self.highest:g}")
        scaled = self._scale(observations)
        bets, mean = self._bets(scaled), (null - self.lowest) / (self.highest - self.lowest)
        # The logarithm of half the larger capital of two gamblers: one bets on a higher mean, one on a lower.
        rising = np.cumsum(np.log1p(np.minimum(bets, BOLDEST_BET / mean) * (scaled - mean)))
        falling = np.cumsum(np.log1p(-np.minimum(bets, BOLDEST_BET / (1 - mean)) * (scaled - mean)))
        wealth = np.maximum(rising, falling) - math.log(2)
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


@dataclass(frozen=True, kw_only=True)
class AsymptoticSequence:
    """Holds asymptotically, from `burn_in` observations on; unbounded before. Needs no bounds."""

    alpha: float = 0.05
    # Fewest observations. Chosen: with fewer, the variance of ratings is hardly known.
    burn_in: int = 30
    # Observations at which the sequence is tightest. Chosen: the size of a usual study.
    tightest_at: int = 200

    def follow(self, observations: ArrayLike, null: float = 0.0) -> FollowedMean:
        """The interval after each observation, the running intersection of those so far."""
        count, means, spreads = _run(observations)
        grown = count * self._mixture + 1
        # Half the interval's width after each count, in standard deviations.
        margins = np.sqrt(2 * grown / (count**2 * self._mixture) * np.log(np.sqrt(grown) / self.alpha))
        half = np.where(count >= self.burn_in, spreads * margins, np.inf)
        low, high = np.maximum.accumulate(means - half), np.minimum.accumulate(means + half)
        p_values = np.where(count >= self.burn_in, self._p_values(means - null, spreads, count), 1.0)
        return FollowedMean(low, high, np.minimum.accumulate(p_values), null)

    @property
    def _mixture(self) -> float:
        """The variance of the normal mixture (rho squared) that is tightest at `tightest_at`."""
        double = -2 * math.log(self.alpha)
        return (double + math.log(double) + 1) / self.tightest_at

    def _p_values(self, distances: Floats, spreads: Floats, count: Integers) -> Floats:
        """The alpha at which the null would lie on the interval's edge; the mixture is the same."""
        grown = count * self._mixture + 1
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(distances == 0, 0.0, distances / spreads)
        exponents = steps**2 * count**2 * self._mixture / (2 * grown)
        return np.asarray(np.minimum(1.0, np.sqrt(grown) * np.exp(-exponents)))


def _run(observations: ArrayLike) -> tuple[Integers, Floats, Floats]:
    """The number of observations, their mean and their standard deviation after each."""
    values = np.asarray(observations, dtype=np.float64)
    count = np.arange(1, len(values) + 1)
    shifted = values - values[:1]  # else the variance of large numbers is rounding
    means = np.cumsum(shifted) / count
    spreads = np.sqrt(np.maximum(np.cumsum(shifted**2) / count - means**2, 0.0))
    return count, means + values[:1], spreads


SequenceMethod = Literal["betting", "asymptotic"]
METHODS: Mapping[SequenceMethod, str] = {
    "betting": "hedged-capital betting confidence sequence (Waudby-Smith & Ramdas 2024)",
    "asymptotic": "asymptotic normal-mixture confidence sequence (Waudby-Smith et al. 2024)",
}
SequentialVerdict = Literal["a is better", "b is better", "no difference larger than the margin", "undecided"]


@dataclass(frozen=True)
class RatedHit:
    """One worker's ratings in one HIT: those of each system's dialogues, and the places of all its dialogues."""

    worker: str
    values: dict[str, list[float]]
    places: list[int]


@dataclass(frozen=True)
class PairedDifferences:
    """Differences in the order in which they became known, and remarks on how they were made."""

    differences: Floats
    reach: float  # Largest possible magnitude of a difference.
    unit: str
    notes: Sequence[str]


@dataclass(frozen=True)
class SequentialLook:
    """The interval after so many observations."""

    observations: int
    mean: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class SequentialComparison:
    """Every look at a comparison, and its verdict, which stands from `decided_at` observations on."""

    a: str
    b: str
    what: str
    method: str
    unit: str
    verdict: SequentialVerdict
    decided_at: int | None
    looks: Sequence[SequentialLook]
    notes: Sequence[str]


def collect_observations(ratings: RatingFile, a: str, b: str, criterion: str = OVERALL) -> PairedDifferences:
    """The differences between two systems of a study, by its workers. AssessmentError names what is missing."""
    check_pair(a, b, sorted({row.system for row in ratings.dialogues}))
    values, reach = _rate(ratings, criterion)
    places, remarks = _put_in_order(ratings)
    hits = _collect_hits(ratings, places, values)
    unit = "the first HIT in which a worker rated both systems"
    first = _find_first(hits, lambda hit: a in hit.values and b in hit.values)
    kept = _keep_passing(ratings, first)
    found = [float(np.mean(hit.values[a]) - np.mean(hit.values[b])) for hit in kept]
    if not first:
        first = _find_first(hits, lambda hit: a in hit.values or b in hit.values)
        kept = _keep_passing(ratings, first)
        found = list(_pair_up(kept, a, b))
        unit = "a worker's first HIT with A less another worker's first HIT with B, paired in the order of arrival"
    notes = []
    if len(kept) < len(first):
        notes.append(f"{len(first) - len(kept)} of {len(first)} workers do not pass the quality control in that HIT")
    left = sum(a in hit.values or b in hit.values for hit in hits) - len(first)
    if left:
        notes.append(f"{left} HITs are no observation: of a worker seen before, or with one of the two systems only")
    return PairedDifferences(np.array(found), reach, unit, [*notes, *remarks])


def compare_sequentially(
    observed: PairedDifferences,
    a: str,
    b: str,
    what: str = OVERALL,
    method: SequenceMethod = "betting",
    alpha: float = 0.05,
    margin: float | None = None,
) -> SequentialComparison:
    """A look after every observation; with a probability of at least 1 - alpha all intervals hold at once.

    With a margin, an interval inside it means that there is no larger difference. TooFewError without observations.
    """
    if not len(observed.differences):
        reasons = "; ".join(observed.notes) or "no worker has rated both"
        raise TooFewError(f"no observation of {a!r} and {b!r} yet ({observed.unit}): {reasons}")
    followed = _follow(observed, method, alpha)
    means = np.cumsum(observed.differences) / np.arange(1, len(observed.differences) + 1)
    columns = zip(means.tolist(), followed.low.tolist(), followed.high.tolist(), followed.p_value.tolist(), strict=True)
    looks = [SequentialLook(place, *row) for place, row in enumerate(columns, start=1)]
    verdict, decided_at = _judge(followed, margin)
    how = f"{METHODS[method]}, alpha {alpha:g}, running intersection"
    return SequentialComparison(a, b, what, how, observed.unit, verdict, decided_at, looks, observed.notes)


def _follow(observed: PairedDifferences, method: SequenceMethod, alpha: float) -> FollowedMean:
    if method == "asymptotic":
        return AsymptoticSequence(alpha=alpha).follow(observed.differences)
    if not np.isfinite(observed.reach):
        raise AssessmentError(
            "method: betting needs bounded scores; say `asymptotic`, or between which numbers they lie"
        )
    return BettingSequence(lowest=-observed.reach, highest=observed.reach, alpha=alpha).follow(observed.differences)


def _judge(followed: FollowedMean, margin: float | None) -> tuple[SequentialVerdict, int | None]:
    decided_at = followed.decided_at
    inside = np.flatnonzero((followed.low > -margin) & (followed.high < margin)) if margin is not None else np.zeros(0)
    if len(inside) and (decided_at is None or inside[0] + 1 <= decided_at):
        return "no difference larger than the margin", int(inside[0]) + 1
    if decided_at is None:
        return "undecided", None
    return ("a is better" if followed.low[decided_at - 1] > 0 else "b is better"), decided_at


def _rate(ratings: RatingFile, criterion: str) -> tuple[Floats, float]:
    """Each dialogue's rating, negative criteria reversed, overall as the mean over criteria; and the range it has."""
    table = build_table(ratings)
    ranges = {(each.low, each.high) for each in ratings.description.criteria}
    low, high = ranges.pop() if len(ranges) == 1 else (COMMON_LOW, COMMON_HIGH)
    return choose_column(table, table.ratings, criterion), high - low


def _put_in_order(ratings: RatingFile) -> tuple[list[int], list[str]]:
    """The places of the dialogues in the order in which they were submitted; the file's where that is not known."""
    rows = ratings.dialogues
    times = [row.submitted_at for row in rows]
    if all(time is not None for time in times):
        return sorted(range(len(rows)), key=lambda place: times[place]), []  # type: ignore[arg-type, return-value]
    return list(range(len(rows))), ["not every dialogue has `submitted_at`: taken in the order of the file"]


def _find_first(hits: Sequence[RatedHit], wanted: Callable[[RatedHit], bool]) -> list[RatedHit]:
    """Each worker's first wanted HIT, in the order of all."""
    first: dict[str, RatedHit] = {}
    for hit in hits:
        if wanted(hit):
            first.setdefault(hit.worker, hit)
    return list(first.values())


def _keep_passing(ratings: RatingFile, hits: Sequence[RatedHit]) -> list[RatedHit]:
    """The HITs whose worker passes the quality control by this HIT alone: later ones do not undo an observation."""
    places = [place for hit in hits for place in hit.places]
    if not any(ratings.dialogues[place].degraded for place in places):
        return list(hits)
    alone = RatingFile(ratings.description, [ratings.dialogues[place] for place in places])
    passing = {each.worker for each in control_quality(build_table(alone)) if each.passes}
    return [hit for hit in hits if hit.worker in passing]


def _pair_up(hits: Sequence[RatedHit], a: str, b: str) -> Iterator[float]:
    """Pairs each worker who rated A with the next who rated B, A minus B."""
    waiting: dict[str, deque[float]] = {a: deque(), b: deque()}
    for hit in hits:
        system = a if a in hit.values else b
        waiting[system].append(float(np.mean(hit.values[system])))
        if waiting[a] and waiting[b]:
            yield waiting[a].popleft() - waiting[b].popleft()


def _collect_hits(ratings: RatingFile, places: Sequence[int], values: Floats) -> list[RatedHit]:
    """The HITs in the order in which they were completed: a HIT counts when its last dialogue is in."""
    hits: dict[tuple[str, str], RatedHit] = {}
    for place in places:
        row = ratings.dialogues[place]
        hit = hits.pop((row.worker, row.hit), None) or RatedHit(row.worker, {}, [])
        hit.places.append(place)
        hit.values.setdefault(row.system, []).append(float(values[place]))
        hits[row.worker, row.hit] = hit  # restored at the end
    return list(hits.values())


Bounds = tuple[float, float]


def compare_scores_sequentially(
    a: ScoreFile,
    b: ScoreFile,
    scorers: list[str] | None = None,
    method: SequenceMethod = "asymptotic",
    bounds: Bounds | None = None,
    alpha: float = 0.05,
    margin: float | None = None,
) -> list[SequentialComparison]:
    """One comparison per scorer, each at its share of alpha, so that with 1 - alpha all of them hold at every look.

    Dialogues are paired by their names where both files have them all, in A's order, otherwise by their places.
    `bounds` are those of a score: betting needs them. Raises AssessmentError and TooFewError.
    """
    pairs, unit = list(pair_dialogues(a, b)), "two dialogues of the same id, in the first file's order"
    if len(pairs) < max(len(a.scored), len(b.scored)):
        pairs, unit = list(zip(a.scored, b.scored, strict=False)), "the files' dialogues of the same place"
    columns = [[each.values(with_details=False) for each in side] for side in zip(*pairs, strict=True)]
    paired = {name for left, right in zip(*columns, strict=True) for name in left if name in right}
    chosen = choose_names(columns, scorers)
    names = [name for name in chosen if name in paired]
    if not names or (scorers and names != chosen):
        lacking = ", ".join(each for each in chosen if each not in paired)
        raise TooFewError(f"scorers: no pair of dialogues has {lacking} on both sides")
    reach = np.inf if bounds is None else bounds[1] - bounds[0]
    notes = [f"alpha {alpha:g} is shared by {len(names)} scorers"] if len(names) > 1 else []
    found = []
    for name in names:
        kept = [(x[name], y[name]) for x, y in zip(*columns, strict=True) if name in x and name in y]
        _check_bounds(name, kept, bounds)
        observed = PairedDifferences(np.array([left - right for left, right in kept]), reach, unit, notes)
        found.append(compare_sequentially(observed, str(a.path), str(b.path), name, method, alpha / len(names), margin))
    return found


def _check_bounds(name: str, kept: list[tuple[float, float]], bounds: Bounds | None) -> None:
    if bounds is None:
        return
    outside = [value for pair in kept for value in pair if not bounds[0] <= value <= bounds[1]]
    if outside:
        raise AssessmentError(f"bounds: {name} has {outside[0]:g}, which is not within {bounds[0]:g} and {bounds[1]:g}")
