"""Answering: every turn is answered from the cache, by work in flight for an equal turn, or by work of its own.

A score that is known, or being computed, needs no room, so it is returned while the service is too full to compute.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from turnscore_core.deadline import Deadline, latest
from turnscore_core.errors import DeadlineExceededError, ScoringError
from turnscore_core.model_set import Combinations, conclude, scorers_behind
from turnscore_core.score_entries import TextHashes
from turnscore_core.scorers.fields import count_chars
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import Item, Outcome, score_of

from turnscore_service import metrics
from turnscore_service.auth.access import CALLER
from turnscore_service.cache.score_cache import Lookup, ScoreCache
from turnscore_service.scheduling.admission import Demand, Reservation
from turnscore_service.scheduling.computation import Computation, Workshop
from turnscore_service.scheduling.flights import Flight, Flights
from turnscore_service.scheduling.loop_time import LARGE_TURNS, LoopTime, Slices
from turnscore_service.scheduling.shedding import Shedding

_CACHE_SHARE = 0.5
"""The largest share of the time left that asking the cache may take: the rest is for computing. Chosen."""

_CHARS_PER_CHARGED_TOKEN = 256
"""Chosen: to tokenize 354 to 444 characters took as much CPU as to compute one token (0.24 to 0.33 us a character, 105
to 116 us a token; the starter bundles, one thread of a Xeon, 2026-11-22)."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Question:
    """One turn asked of one scorer, and the flights that it waits for."""

    asked: str
    """The scorer's name in the outcome, whichever version of it answers."""
    lookup: Lookup
    deadline: Deadline
    outcome: Outcome
    flights: list[Flight] = field(default_factory=list)
    own: Flight | None = None
    """The flight that this question started."""
    boarded_at: float = 0.0

    @property
    def name(self) -> str:
        return self.lookup.loaded.name

    def board(self, flight: Flight) -> None:
        flight.enter()
        self.flights.append(flight)
        self.boarded_at = time.monotonic()

    def leave(self, *, expired: bool = False) -> None:
        for flight in self.flights:
            flight.leave(expired=expired)
        self.flights = []

    def give_up(self) -> None:
        """The work that its time ran out for."""
        self.outcome.errors[self.asked] = DeadlineExceededError("the deadline passed before the turn was scored")
        self.leave(expired=True)

    @property
    def waits_for(self) -> list[Flight]:
        return [flight for flight in self.flights if flight.landed is None]

    def conclude(self) -> None:
        """Puts the score together from known pieces and landed ones."""
        if self.asked in self.outcome.errors:
            return
        lookup, outcome, parts = self.lookup, self.outcome, dict(self.lookup.known)
        for flight in self.flights:
            landed = flight.landed
            assert landed is not None
            if isinstance(landed, ScoringError):
                outcome.errors[self.asked] = landed
                return
            parts |= landed.parts
            if flight is self.own:
                outcome.tokenize = max(outcome.tokenize, landed.tokenize_seconds)
                outcome.queue = max(outcome.queue, landed.queue_seconds)
                outcome.inference = max(outcome.inference, landed.inference_seconds)
            else:
                outcome.queue = max(outcome.queue, time.monotonic() - self.boarded_at)
        whole = lookup.reader.join(lookup.turn, [parts[part] for part in lookup.parts])
        outcome.scores[self.asked] = score_of(lookup.loaded, lookup.turn, whole, is_cached=not self.flights)
        if whole.raw.vector is not None:
            outcome.vectors[self.asked] = whole.raw.vector


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is on its way in one process, whatever models answer it: room that is held, and flights."""

    shedding: Shedding
    flights: Flights
    loop_time: LoopTime


class Answerer:
    """Answers turns with the loaded scorers. Belongs to one event loop."""

    def __init__(
        self,
        workshops: Mapping[str, Workshop],
        traffic: Traffic,
        cache: ScoreCache,
        combinations: Combinations | None = None,
    ) -> None:
        self._workshops = workshops
        self.shedding = traffic.shedding
        self._admission = traffic.shedding.admission
        self._cache = cache
        self._flights = traffic.flights
        self._loop_time = traffic.loop_time
        self._combinations = combinations or {}

    async def answer(self, items: Sequence[Item]) -> list[Outcome]:
        """What each item's scorers say of it, in the order asked; a scorer that fails stands in `errors`.

        Raises OverloadedError, before any work, where there is no room for what has to be computed, or nothing left of
        the budget of the caller's key; which pays for what is admitted or known, and nothing else.
        """
        caller = CALLER.get()
        caller.require_budget(len(items))
        outcomes = [Outcome() for _ in items]
        slices = self._loop_time.slices(is_large=len(items) >= LARGE_TURNS)
        questions = await self._look_up(items, outcomes, slices)
        await self._ask_cache(questions)
        try:
            caller.require_budget(len(items))  # again: others of the same key were answered meanwhile
            self._begin(questions, caller.share)
            caller.charge(len(items))
            await _wait(questions)
            slices.renew()
            for each in questions:
                await slices.pause()
                each.conclude()
            if self._combinations:
                for item, outcome in zip(items, outcomes, strict=True):
                    conclude(item.asked, outcome, self._combinations)
        finally:
            for each in questions:
                each.leave()
        return outcomes

    async def _look_up(self, items: Sequence[Item], outcomes: Sequence[Outcome], slices: Slices) -> list[_Question]:
        """A question for each item and scorer, with what this process knows; lets others in between."""
        questions: list[_Question] = []
        hashes = TextHashes()
        for item, outcome in zip(items, outcomes, strict=True):
            await slices.pause()
            for name in scorers_behind(item.asked, self._combinations):
                loaded = self._workshops[item.versions.get(name, name)].loaded
                lookup = self._cache.look_up(loaded, item.turn_for(loaded), item.cache, item.namespace, hashes)
                questions.append(_Question(asked=name, lookup=lookup, deadline=item.deadline, outcome=outcome))
        return questions

    async def _ask_cache(self, questions: Sequence[_Question]) -> None:
        """One round trip for all. Items share its time, which the one with the least left bounds."""
        started_at = time.monotonic()
        seconds = min((each.deadline.remaining_seconds() for each in questions), default=0.0)
        await self._cache.find([each.lookup for each in questions], _CACHE_SHARE * seconds)
        took = time.monotonic() - started_at
        for each in questions:
            each.outcome.cache = took

    def _begin(self, questions: Sequence[_Question], caller: str) -> None:
        """Puts every question on flights with all that it lacks, and computes those that were begun for it."""
        begun: dict[str, list[Flight]] = {}
        deadlines = []
        for each in questions:
            self._board(each)
            if each.own is not None:
                begun.setdefault(each.name, []).append(each.own)
                deadlines.append(each.deadline)
        if not begun:
            self.shedding.note_known({each.name for each in questions}, caller)
            return
        demands = {name: self._demand(name, flights) for name, flights in begun.items()}
        reservation = self.shedding.hold(demands, latest(deadlines), caller)
        for name, flights in begun.items():
            self._compute(name, flights, demands[name], reservation)

    def _board(self, question: _Question) -> None:
        """Puts it on the flights that have what it lacks, and on one of its own with what none has."""
        lookup = question.lookup
        missing = lookup.missing
        places = []
        for place in missing:
            flight = self._flights.find(lookup.key, lookup.parts[place])
            if flight is None:
                places.append(place)
            elif flight not in question.flights:
                question.board(flight)
        if question.flights:
            metrics.CACHE_JOINS.labels(question.name).inc()
        if not places:
            return
        turn: TurnToScore = lookup.turn
        computed: Sequence[int] = range(len(lookup.parts))
        if len(places) < len(lookup.parts):
            turn, computed = lookup.reader.narrow(lookup.turn, places)
        question.own = Flight(
            self._flights,
            lookup.key,
            [lookup.parts[place] for place in computed],
            turn=turn,
            chars=count_chars(lookup.inputs),
            reader=lookup.reader,
            keep=partial(self._cache.keep, lookup),
        )
        self._flights.add(lookup.key, question.own)
        question.board(question.own)

    def _compute(self, name: str, flights: Sequence[Flight], demand: Demand, reservation: Reservation) -> None:
        def learn(real_tokens: int) -> None:
            self._admission.learn(name, demand.tokens, real_tokens + _tokenizing_charge(flights))

        Computation(self._workshops[name], flights, learn, partial(reservation.release, name)).begin()

    def _demand(self, name: str, flights: Sequence[Flight]) -> Demand:
        estimate = self._workshops[name].loaded.scorer.estimate_tokens
        return Demand(len(flights), sum(estimate(flight.turn) for flight in flights) + _tokenizing_charge(flights))


def _tokenizing_charge(flights: Sequence[Flight]) -> int:
    """The cost of tokenizing the turns, in tokens to compute."""
    return sum(flight.chars for flight in flights) // _CHARS_PER_CHARGED_TOKEN


async def _wait(questions: Sequence[_Question]) -> None:
    """Returns when every flight that is waited for has landed. Questions that run out of time before that leave."""
    for expiry in sorted({each.deadline.expires_at for each in questions}):
        flights = {flight for each in questions for flight in each.waits_for}
        if not flights:
            return
        await _land(flights, expiry)
        for each in questions:
            if each.deadline.expires_at <= expiry and each.waits_for:
                each.give_up()


async def _land(flights: Collection[Flight], expires_at: float) -> None:
    """Returns when all of them have landed, or at that time."""
    loop = asyncio.get_running_loop()
    done, left = loop.create_future(), len(flights)

    def end() -> None:
        if not done.done():
            done.set_result(None)

    def count_down() -> None:
        nonlocal left
        left -= 1
        if not left:
            end()

    for flight in flights:
        flight.on_land.append(count_down)
    timer = loop.call_later(max(0.0, expires_at - time.monotonic()), end)
    try:
        await done
    finally:
        timer.cancel()
