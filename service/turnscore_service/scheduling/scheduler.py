"""The scheduler: every turn is answered from the cache, by work in flight for an equal turn, or by work of its own."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from turnscore_core.deadline import Deadline, latest
from turnscore_core.errors import DeadlineExceededError, FailedScoringError, ScoringError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import Combinations, component_scorers, conclude
from turnscore_core.score_entries import TextHashes
from turnscore_core.scorers.scorer import RawScore, ScorePart, ScoresInParts, TokenPack, TurnToScore, count_chars
from turnscore_core.scoring import Item, Outcome, PieceCollector, score_of
from turnscore_wire import TokenCount

from turnscore_service import metrics
from turnscore_service.auth.access import CALLER
from turnscore_service.cache.score_cache import Lookup, ScoreCache
from turnscore_service.scheduling.admission import Demand, Reservation, Shedding
from turnscore_service.scheduling.batch_queue import PackScores
from turnscore_service.scheduling.batcher import Batcher, expire
from turnscore_service.scheduling.executor import Encoded, OpenWork, TokenizerExecutor
from turnscore_service.scheduling.fairness import LARGE_TURNS, CooperativeScheduler, TimeSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """Pieces of a score by fingerprint, and where their time went."""

    parts: Mapping[bytes, ScorePart]
    tokenize_seconds: float
    queue_seconds: float
    inference_seconds: float


class InFlight:
    """Pieces of one turn's score on their way."""

    def __init__(
        self,
        flights: "SingleFlight",
        key: str | None,
        parts: Iterable[bytes],
        *,
        turn: TurnToScore,
        chars: int,
        reader: ScoresInParts,
        keep: Callable[[Mapping[bytes, ScorePart]], None],
    ) -> None:
        """`turn` is as its scorer is to see it; `chars` are those that the scorer reads of it.

        `keep` is called with the finished pieces before they land.
        """
        self.turn = turn
        self.chars = chars
        self.reader = reader
        self.keep = keep
        self.landed: Computed | ScoringError | None = None
        """What became of it, once it has landed."""
        self.parts = frozenset(parts)
        self.on_land: list[Callable[[], object]] = []
        """Called when it lands."""
        self.on_empty: list[Callable[[bool], None]] = []
        """Called if the last caller leaves before it lands; with whether its time ran out."""
        self._flights = flights
        self._key = key
        self._waiting = 0

    @property
    def is_wanted(self) -> bool:
        """Whether a caller waits for it."""
        return self._waiting > 0 and self.landed is None

    def enter(self) -> None:
        """One more caller waits."""
        self._waiting += 1

    def leave(self, *, expired: bool = False) -> None:
        """One caller no longer waits."""
        self._waiting -= 1
        if not self._waiting and self.landed is None:
            self._flights.remove(self._key, self)
            for stop in self.on_empty:
                stop(expired)
            self._forget_calls()

    def land(self, result: Computed | ScoringError) -> None:
        """Gives the result to every caller; only the first result counts."""
        if self.landed is None:
            self._flights.remove(self._key, self)
            self.landed = result
            for tell in self.on_land:
                tell()
            self._forget_calls()

    def _forget_calls(self) -> None:
        """Its calls know it, and it knows the scorer: a replaced model would stay until the next garbage collection."""
        self.on_land.clear()
        self.on_empty.clear()


class SingleFlight:
    """The flights of one process, by key and piece. Belongs to one event loop."""

    def __init__(self) -> None:
        self._by_part: dict[tuple[str, bytes], InFlight] = {}

    def find(self, key: str | None, part: bytes) -> InFlight | None:
        """The flight that this piece of that turn is on; a turn without a key is on none."""
        return None if key is None else self._by_part.get((key, part))

    def add(self, key: str | None, flight: InFlight) -> None:
        """Lets others join it; pieces that are on another flight stay there for the next question."""
        if key is not None:
            for part in flight.parts:
                self._by_part.setdefault((key, part), flight)

    def remove(self, key: str | None, flight: InFlight) -> None:
        """Lets no other caller join."""
        if key is not None:
            for part in flight.parts:
                if self._by_part.get((key, part)) is flight:
                    del self._by_part[key, part]


_LOGGER = logging.getLogger("turnscore.computing")


@dataclass(frozen=True, slots=True)
class ScorerRuntime:
    """One scorer with what it takes to run it."""

    loaded: LoadedScorer
    tokenizing: TokenizerExecutor
    batcher: Batcher
    computations: OpenWork = field(default_factory=OpenWork)
    """Those that have begun."""

    async def retire(self) -> None:
        """Returns when nothing of it is being computed any more, and its threads have been told to end.

        To be called when no request can begin anything in it.
        """
        await self.computations.wait_until_none()
        self.batcher.retire()
        self.tokenizing.retire()


class ScoringJob:
    """The turns of one request that no other request computes. Belongs to one event loop."""

    def __init__(
        self,
        runtime: ScorerRuntime,
        flights: Sequence[InFlight],
        on_tokenized: Callable[[int], None],
        on_done: Callable[[], None],
    ) -> None:
        """`on_tokenized` gets the number of tokens.

        `on_done` is called once, when nothing of it is being computed any more.
        """
        self._runtime = runtime
        self._flights = flights
        self._on_tokenized = on_tokenized
        self._on_done = on_done
        self._started_at = time.monotonic()
        self._tokenize_seconds = 0.0
        self._submitted = 0
        self._collector = PieceCollector(runtime.loaded.scorer)

    def begin(self) -> None:
        """Tokenizes, and goes on from there in callbacks of the event loop."""
        self._runtime.computations.begin()
        tokenizing, turns = self._runtime.tokenizing, [flight.turn for flight in self._flights]
        if tokenizing.is_quick(turns, sum(flight.chars for flight in self._flights)):
            self._take(lambda: tokenizing.encode_at_once(turns))
            return
        encoding = tokenizing.encode(turns)
        self._stop_unwanted(range(len(turns)), lambda _: encoding.cancel())
        encoding.add_done_callback(lambda _: self._take(encoding.result))

    def _take(self, encoded: Callable[[], Encoded]) -> None:
        """Submits the packs that callers still wait for. Turns that cannot be tokenized land as their errors."""
        try:
            self._submit_all(*encoded())
        except asyncio.CancelledError:
            pass  # nobody waits for any of them
        except Exception as error:
            self._land(error, range(len(self._flights)))
        if not self._submitted:
            self._end_all()

    def _submit_all(self, packs: Sequence[TokenPack], failed: Mapping[int, ScoringError]) -> None:
        self._tokenize_seconds = time.monotonic() - self._started_at
        metrics.TOKENIZE_SECONDS.labels(self._runtime.loaded.name).observe(self._tokenize_seconds)
        self._on_tokenized(sum(pack.real_tokens for pack in packs))
        for place, error in failed.items():
            self._land(error, [place])
        for pack in packs:
            if self._is_wanted(pack.answers):
                self._submit(pack)

    def _submit(self, pack: TokenPack) -> None:
        # No deadline: the callers that wait say for how long, and one may join that has more time than the first.
        future = self._runtime.batcher.submit(pack)
        self._stop_unwanted(pack.answers, lambda expired: expire(future) if expired else future.cancel())
        future.add_done_callback(lambda _: self._end(pack, future))
        self._submitted += 1

    def _end(self, pack: TokenPack, done: "asyncio.Future[PackScores]") -> None:
        self._deliver(pack, done)
        self._submitted -= 1
        if not self._submitted:
            self._end_all()

    def _end_all(self) -> None:
        self._runtime.computations.end()
        self._on_done()

    def _deliver(self, pack: TokenPack, done: "asyncio.Future[PackScores]") -> None:
        if done.cancelled():
            return
        if error := done.exception():
            self._land(error, pack.answers)
            return
        scores = done.result()
        for number, (place, tokens, raw) in enumerate(zip(pack.answers, pack.tokens, scores.raw, strict=True)):
            try:
                if (whole := self._collector.take(pack, number, raw)) is not None:
                    self._finish(self._flights[place], whole, tokens, scores)
            except Exception as failure:
                self._land(failure, [place])

    def _finish(self, flight: InFlight, raw: RawScore, tokens: TokenCount, scores: PackScores) -> None:
        pieces = flight.reader.split(flight.turn, ScorePart(raw, tokens))
        found = dict(zip(flight.reader.parts_of(flight.turn), pieces, strict=True))
        flight.keep(found)
        flight.land(
            Computed(
                parts=found,
                tokenize_seconds=self._tokenize_seconds,
                queue_seconds=scores.queue_seconds,
                inference_seconds=scores.inference_seconds,
            )
        )

    def _land(self, error: BaseException, places: Sequence[int]) -> None:
        if not isinstance(error, ScoringError):
            _LOGGER.error("computing failed: %s", type(error).__name__, exc_info=error)
            error = FailedScoringError("something failed inside turnscore; its log says what")
        for place in places:
            self._flights[place].land(error)

    def _is_wanted(self, places: Sequence[int]) -> bool:
        return any(self._flights[place].is_wanted for place in places)

    def _stop_unwanted(self, places: Sequence[int], stop: Callable[[bool], object]) -> None:
        """Calls `stop` when the last caller that waits for any of these has left."""

        flights = [self._flights[place] for place in places]
        left = list(flights)

        def look(expired: bool) -> None:
            while left and not left[-1].is_wanted:  # what is not wanted never is again: each is looked at once
                left.pop()
            if not left:
                stop(expired)

        for flight in flights:
            flight.on_empty.append(look)


_CACHE_SHARE = 0.5
"""The largest share of the time left that asking the cache may take: the rest is for computing. Chosen."""

_CHARS_PER_CHARGED_TOKEN = 256
"""Chosen: to tokenize 354 to 444 characters took as much CPU as to compute one token (0.24 to 0.33 us a character, 105
to 116 us a token; the starter bundles, one thread of a Xeon, 2026-11-22)."""


@dataclass(slots=True, eq=False, kw_only=True)
class PendingScore:
    """One turn asked of one scorer, and the flights that it waits for."""

    asked: str
    """The scorer's name in the outcome, whichever version of it answers."""
    lookup: Lookup
    deadline: Deadline
    outcome: Outcome
    flights: list[InFlight] = field(default_factory=list)
    own: InFlight | None = None
    """The flight that this question started."""
    boarded_at: float = 0.0

    @property
    def name(self) -> str:
        return self.lookup.loaded.name

    def board(self, flight: InFlight) -> None:
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
    def waits_for(self) -> list[InFlight]:
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
class SharedState:
    """What is on its way in one process, whatever models answer it: room that is held, and flights."""

    shedding: Shedding
    flights: SingleFlight
    cooperative: CooperativeScheduler


class Scheduler:
    """Answers turns with the loaded scorers. Belongs to one event loop."""

    def __init__(
        self,
        runtimes: Mapping[str, ScorerRuntime],
        traffic: SharedState,
        cache: ScoreCache,
        combinations: Combinations | None = None,
    ) -> None:
        self._runtimes = runtimes
        self.shedding = traffic.shedding
        self._admission = traffic.shedding.admission
        self._cache = cache
        self._flights = traffic.flights
        self._cooperative = traffic.cooperative
        self._combinations = combinations or {}

    async def answer(self, items: Sequence[Item]) -> list[Outcome]:
        """What each item's scorers say of it, in the order asked; a scorer that fails stands in `errors`.

        Raises OverloadedError, before any work, where there is no room for what has to be computed, or nothing left of
        the budget of the caller's key; which pays for what is admitted or known, and nothing else.
        """
        caller = CALLER.get()
        caller.require_budget(len(items))
        outcomes = [Outcome() for _ in items]
        slices = self._cooperative.slices(is_large=len(items) >= LARGE_TURNS)
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

    async def _look_up(
        self, items: Sequence[Item], outcomes: Sequence[Outcome], slices: TimeSlice
    ) -> list[PendingScore]:
        """A question for each item and scorer, with what this process knows; lets others in between."""
        questions: list[PendingScore] = []
        hashes = TextHashes()
        for item, outcome in zip(items, outcomes, strict=True):
            await slices.pause()
            for name in component_scorers(item.asked, self._combinations):
                loaded = self._runtimes[item.versions.get(name, name)].loaded
                lookup = self._cache.look_up(loaded, item.turn_for(loaded), item.cache, item.namespace, hashes)
                questions.append(PendingScore(asked=name, lookup=lookup, deadline=item.deadline, outcome=outcome))
        return questions

    async def _ask_cache(self, questions: Sequence[PendingScore]) -> None:
        """One round trip for all. Items share its time, which the one with the least left bounds."""
        started_at = time.monotonic()
        seconds = min((each.deadline.remaining_seconds() for each in questions), default=0.0)
        await self._cache.find([each.lookup for each in questions], _CACHE_SHARE * seconds)
        took = time.monotonic() - started_at
        for each in questions:
            each.outcome.cache = took

    def _begin(self, questions: Sequence[PendingScore], caller: str) -> None:
        """Puts every question on flights with all that it lacks, and computes those that were begun for it."""
        begun: dict[str, list[InFlight]] = {}
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
        reservation = self.shedding.reserve(demands, latest(deadlines), caller)
        for name, flights in begun.items():
            self._compute(name, flights, demands[name], reservation)

    def _board(self, question: PendingScore) -> None:
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
        question.own = InFlight(
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

    def _compute(self, name: str, flights: Sequence[InFlight], demand: Demand, reservation: Reservation) -> None:
        def learn(real_tokens: int) -> None:
            self._admission.observe_tokens(name, demand.tokens, real_tokens + _tokenizing_charge(flights))

        ScoringJob(self._runtimes[name], flights, learn, partial(reservation.release, name)).begin()

    def _demand(self, name: str, flights: Sequence[InFlight]) -> Demand:
        estimate = self._runtimes[name].loaded.scorer.estimate_tokens
        return Demand(len(flights), sum(estimate(flight.turn) for flight in flights) + _tokenizing_charge(flights))


def _tokenizing_charge(flights: Sequence[InFlight]) -> int:
    """The cost of tokenizing the turns, in tokens to compute."""
    return sum(flight.chars for flight in flights) // _CHARS_PER_CHARGED_TOKEN


async def _wait(questions: Sequence[PendingScore]) -> None:
    """Returns when every flight that is waited for has landed. Questions that run out of time before that leave."""
    for expiry in sorted({each.deadline.expires_at for each in questions}):
        flights = {flight for each in questions for flight in each.waits_for}
        if not flights:
            return
        await _land(flights, expiry)
        for each in questions:
            if each.deadline.expires_at <= expiry and each.waits_for:
                each.give_up()


async def _land(flights: Collection[InFlight], expires_at: float) -> None:
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
