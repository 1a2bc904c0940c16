"""The scheduler: every turn is answered from the cache, by work in flight for an equal turn, or by work of its own.

A score that is known, or being computed, needs no room, so it is returned while the service is too full to compute.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

from turnscore_core.batches import PackCollector
from turnscore_core.errors import DeadlineExceededError, FailedScoringError, ScoringError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import Combinations, add_combinations, component_scorers, with_thresholds
from turnscore_core.score_entries import TextHashes
from turnscore_core.scorers.scorer import (
    WHOLE,
    WHOLE_SCORE,
    Fields,
    RawScore,
    TokenPack,
    TurnToScore,
    count_chars,
)
from turnscore_core.scoring import Deadline, Item, Outcome, ask_together, encode_in_pieces, encode_isolating, score_of

from turnscore_service import metrics
from turnscore_service.auth.access import CALLER, Caller
from turnscore_service.cache.redis_client import Draw
from turnscore_service.cache.redis_level import RedisLevel
from turnscore_service.cache.score_cache import CacheLookup, ScoreCache
from turnscore_service.scheduling.admission import Admission, Demand, Reservation
from turnscore_service.scheduling.batcher import Batcher, PackScores, expire
from turnscore_service.scheduling.executor import ExecutorWatch, OpenWork, SupervisedExecutor
from turnscore_service.scheduling.fairness import LARGE_TURNS, CooperativeScheduler, TimeSlice
from turnscore_service.settings.service import BatchingSettings

_CACHE_SHARE = 0.5
"""The largest share of the time left that asking the cache may take: the rest is for computing. Chosen."""
_CHARS_PER_CHARGED_TOKEN = 256
"""Chosen: to tokenize 354 to 444 characters took as much CPU as to compute one token (0.24 to 0.33 us a character, 105
to 116 us a token; the starter bundles, one thread of a Xeon, 2026-11-22)."""
_AT_ONCE_SECONDS = 0.001
"""The longest tokenizing done on the event loop, of texts none of whose words are known; plain English takes a tenth.
Chosen: to hand work over and take it back costs 0.1 to 0.15 ms of CPU (measured on 2 CPUs), and the loop's other work
waits meanwhile."""

_LOGGER = logging.getLogger("turnscore.computing")

Encoded = tuple[list[TokenPack], Mapping[int, ScoringError]]
"""The packs, and by its place the error of each turn that could not be tokenized."""


@dataclass(slots=True, eq=False)
class InFlight:
    """What scorers of one pass say of one turn, being computed, for all callers that wait for some of it.

    It is computed while any caller waits. Each caller decides for itself how long it waits, and the last to leave ends
    it. A failure goes to every caller that waits, and is not kept.
    """

    others: "SingleFlight"
    turn: TurnToScore
    """As its scorers are to see it."""
    chars: int
    """Those that they read of it."""
    parts: "list[PendingScore]" = field(default_factory=list)
    """For each scorer the score for which it was begun."""
    waiting: int = 0
    """Turns of callers that wait for it."""
    is_done: bool = False
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Of tokenizing, of waiting for a batch, and of the batch."""
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    computed_by: "list[tuple[list[InFlight], asyncio.Future[Any]]]" = field(default_factory=list)
    """What computes it, each with all the work that it does; of that, what is not wanted any more may be missing."""

    def leave(self, *, expired: bool = False) -> None:
        """A turn no longer waits for it before it is done; `expired`: because its time ran out."""
        self.waiting -= 1
        if self.waiting:
            return
        for works, future in self.computed_by:
            while works and (works[-1].is_done or not works[-1].waiting):  # never wanted again: each is looked at once
                works.pop()
            if not works and expired:
                expire(future)
            elif not works:
                future.cancel()
        self.finish()

    def finish(self, error: ScoringError | None = None, seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> None:
        """Lets every caller have what the parts found, or the error, and no other join. Only the first call counts."""
        if self.is_done:
            return
        self.is_done, self.seconds = True, seconds
        self.done.set_result(None)
        for part in self.parts:
            part.error = part.error or error
            for fragment in part.computed:
                if (held := self.others.get((part.key, fragment))) is not None and held[0] is self:
                    del self.others[part.key, fragment]
        # What computes it knows it, and it knows the scorer: a replaced model would stay until the next garbage
        # collection.
        self.computed_by.clear()


def _internal_error(error: BaseException) -> ScoringError:
    """What callers are told; the log has the rest."""
    _LOGGER.error("computing failed: %s", type(error).__name__, exc_info=error)
    return FailedScoringError()


@dataclass(slots=True, eq=False, kw_only=True)
class PendingScore(CacheLookup):
    """One scorer's score of a turn: fragments that are known, and fragments that are being computed.

    Callers of equal turns may wait for what is computed for this one.
    """

    asked: str
    """The scorer's name in the outcome, whichever version of it answers."""
    computed: Sequence[bytes] = ()
    """The fragments that are computed for it."""
    found: Mapping[bytes, RawScore] = field(default_factory=dict)
    """These, once they are computed without an error."""
    error: ScoringError | None = None
    """Why they are not."""
    waits_for: "Sequence[PendingScore]" = ()
    """Those of whose fragments it needs some, itself among them where any are computed for it."""

    def take(self, turn: TurnToScore, answer: RawScore | ScoringError, cache: ScoreCache) -> None:
        """What the scorer said of the turn. One that cannot be read or kept is an error of this scorer alone."""
        if isinstance(answer, ScoringError):
            self.error = answer
            return
        try:
            if self.computed is WHOLE_SCORE:
                found = {WHOLE: answer}
            else:
                found = dict(zip(self.computed, self.loaded.scorer.split(turn, answer), strict=True))
            cache.keep(self, found)  # before any caller has it
            self.found = found
        except Exception as error:
            self.error = _internal_error(error)

    def assemble(self, turn: TurnToScore, outcome: Outcome, thresholds: Mapping[str, float | None]) -> None:
        """Puts the score together from known fragments and computed ones; labels it by its caller's threshold."""
        fragments = self.known
        for part in self.waits_for:
            if part.error is not None:
                outcome.errors[self.asked] = part.error
                return
            fragments = {**fragments, **part.found} if fragments else part.found
        loaded = self.loaded
        if self.fragments is WHOLE_SCORE:
            raw = fragments[WHOLE]
        else:
            raw = loaded.scorer.join(turn, [fragments[each] for each in self.fragments])
        if self.asked in thresholds:
            loaded = replace(loaded, threshold=thresholds[self.asked])
        outcome.scores[self.asked] = score_of(loaded, turn, raw, is_cached=not self.waits_for)
        if raw.vector is not None:
            outcome.vectors[self.asked] = raw.vector


SingleFlight = dict[tuple[str | None, bytes], tuple[InFlight, PendingScore]]
"""What is being computed in one process, by key and fragment, so that equal turns are computed once."""


@dataclass(slots=True, eq=False)
class PendingTurn:
    """One turn asked of scorers that share a pass, most often one, and the work in flight that it waits for."""

    turn: TurnToScore
    inputs: Fields
    deadline: Deadline
    outcome: Outcome
    runtime: "ScorerRuntime"
    """The one that computes for these scorers."""
    scores: list[PendingScore] = field(default_factory=list)
    works: list[InFlight] = field(default_factory=list)
    own: InFlight | None = None
    """What was begun for it."""
    joined_at: float = 0.0

    def leave(self) -> None:
        """Waits for nothing any more."""
        for work in self.works:
            if not work.is_done:
                work.leave()
        self.works, self.own = [], None
        for each in self.scores:
            each.waits_for = ()  # which would keep each other, and the scorer

    def give_up(self) -> None:
        """Its time ran out: the scores that are not computed by now are errors."""
        undone = [work for work in self.works if not work.is_done]
        self.works = [work for work in self.works if work.is_done]
        parts = {part for work in undone for part in work.parts}
        for each in self.scores:
            if not parts.isdisjoint(each.waits_for):
                self.outcome.errors[each.asked] = DeadlineExceededError(
                    "the deadline passed before the turn was scored"
                )
        for work in undone:
            work.leave(expired=True)

    def assemble(self, thresholds: Mapping[str, float | None]) -> None:
        """Puts its scores, or their errors, into the outcome, with what they waited for."""
        outcome = self.outcome
        for work in self.works:
            if work is self.own:
                tokenize, queue, inference = work.seconds
                outcome.tokenize = max(outcome.tokenize, tokenize)
                outcome.queue = max(outcome.queue, queue)
                outcome.inference = max(outcome.inference, inference)
            else:
                outcome.queue = max(outcome.queue, time.monotonic() - self.joined_at)
        for each in self.scores:
            if each.asked not in outcome.errors:
                each.assemble(self.turn, outcome, thresholds)


class ScorerRuntime:
    """One scorer with its tokenizer's thread and its batches. Belongs to one event loop.

    Of the scorers that share a pass, one computes for all: threads, queue, room and their metrics are under its name.
    """

    def __init__(
        self,
        loaded: LoadedScorer,
        settings: BatchingSettings,
        watch: ExecutorWatch | None = None,
        computes: "ScorerRuntime | None" = None,
    ) -> None:
        """`computes` is the one that computes for it; None: it does so itself."""
        self.loaded = loaded
        self._other = computes  # never itself: a replaced model would stay until the next garbage collection
        if computes is not None:
            return
        self.batcher = Batcher(loaded, settings, watch)
        self.tokenizer = SupervisedExecutor(
            f"{loaded.name}-tokenizer", 1, partial(loaded.scorer.encode, [loaded.sample]), watch
        )
        self.jobs = OpenWork()
        """Those that have begun."""
        self.tokenize_seconds = metrics.TOKENIZE_SECONDS.labels(loaded.name)

    @property
    def computes(self) -> "ScorerRuntime":
        """The one that computes for it."""
        return self._other or self

    def encode(self, turns: Sequence[TurnToScore]) -> "asyncio.Future[Encoded]":
        """The turns' packs, made in a thread: raises as its `run` does. Stops soon after the future is cancelled."""
        given_up = threading.Event()
        encoding = self.tokenizer.run(encode_in_pieces, self.loaded, turns, given_up.is_set)
        encoding.add_done_callback(lambda _: given_up.set())
        return encoding

    async def retire(self) -> None:
        """Returns when nothing of it is being computed any more, and its threads have been told to end.

        To be called when no request can begin anything in it.
        """
        if self.computes is self:
            await self.jobs.wait_until_none()
            self.batcher.retire()
            self.tokenizer.retire()

    def close(self) -> None:
        """Ends the threads; waiting work is dropped."""
        if self.computes is self:
            self.batcher.close()
            self.tokenizer.close()


@dataclass(slots=True, eq=False)
class ScoringJob:
    """The turns of one request for scorers of one pass that no other request computes. Belongs to one event loop.

    Knows no caller: it goes on while its work is waited for, and takes what is not out of the queue.
    """

    runtime: ScorerRuntime
    works: Sequence[InFlight]
    reservation: Reservation
    """What it holds for the scorer is given back when nothing of the job is being computed any more."""
    cache: ScoreCache
    started_at: float = field(default_factory=time.monotonic)
    tokenize_seconds: float = field(init=False)
    answers: list[tuple[InFlight, PendingScore]] = field(init=False)
    """By the place of a pack's answer."""
    collector: PackCollector = field(init=False)
    submitted: int = 0

    def begin(self) -> None:
        """Tokenizes, and goes on from there in callbacks of the event loop."""
        self.answers = [(work, part) for work in self.works for part in work.parts]
        self.runtime.jobs.begin()
        loaded, turns = self.runtime.loaded, [work.turn for work in self.works]
        self.collector = PackCollector(loaded.scorer)
        seconds = loaded.tokenizing.seconds(len(turns), sum(map(attrgetter("chars"), self.works)))
        if seconds <= _AT_ONCE_SECONDS and all(map(loaded.scorer.is_planned, turns)):
            self._submit_all(*encode_isolating(loaded, turns))
            return
        encoding, wanted = self.runtime.encode(turns), list(self.works)
        for work in self.works:
            work.computed_by.append((wanted, encoding))
        encoding.add_done_callback(self._take)

    def _take(self, encoding: "asyncio.Future[Encoded]") -> None:
        if encoding.cancelled():  # no caller waits for any of them
            self._end()
        elif error := encoding.exception():
            self._fail(error, self.works)
            self._end()
        else:
            self._submit_all(*encoding.result())

    def _submit_all(self, packs: Sequence[TokenPack], failed: Mapping[int, ScoringError]) -> None:
        """Submits the packs that callers still wait for."""
        runtime = self.runtime
        for place, error in failed.items():
            self.works[place].finish(error)
        if any([part.loaded is not runtime.loaded for _, part in self.answers]):  # noqa: C419
            packs, _ = ask_together(packs, {}, [[part.loaded.scorer for part in work.parts] for work in self.works])
        self.tokenize_seconds = time.monotonic() - self.started_at
        runtime.tokenize_seconds.observe(self.tokenize_seconds)
        self.reservation.observe_tokens(runtime.loaded.name, sum(map(attrgetter("real_tokens"), packs)))
        try:
            for pack in packs:
                works = list(dict.fromkeys([self.answers[place][0] for place in pack.answers]))
                if any(map(attrgetter("waiting"), works)):
                    # No deadline: the callers that wait say for how long, and one may join that has more time.
                    scoring, wanted = runtime.batcher.submit(pack), works.copy()
                    self.submitted += 1
                    for work in works:
                        work.computed_by.append((wanted, scoring))
                    scoring.add_done_callback(partial(self._deliver, pack, works))
        except Exception as error:
            self._fail(error, self.works)
        if not self.submitted:
            self._end()

    def _deliver(self, pack: TokenPack, works: Sequence[InFlight], done: "asyncio.Future[PackScores]") -> None:
        if not done.cancelled():
            try:
                scores = done.result()
                answered = {}
                for place, answer in self.collector.take(pack, scores.raw):
                    work, part = self.answers[place]
                    part.take(work.turn, answer, self.cache)
                    answered[work] = True
                for work in answered:
                    work.finish(None, (self.tokenize_seconds, scores.queue_seconds, scores.inference_seconds))
            except Exception as error:
                self._fail(error, works)
        self.submitted -= 1
        if not self.submitted:
            self._end()

    def _end(self) -> None:
        self.runtime.jobs.end()
        self.reservation.release(self.runtime.loaded.name)

    def _fail(self, error: BaseException, works: Sequence[InFlight]) -> None:
        known = error if isinstance(error, ScoringError) else _internal_error(error)
        for work in works:
            work.finish(known)


class Scheduler:
    """Answers turns with the loaded scorers. Belongs to one event loop."""

    def __init__(
        self,
        runtimes: Mapping[str, ScorerRuntime],
        cache: ScoreCache,
        combinations: Combinations,
        admission: Admission,
        in_flight: SingleFlight,
        cooperative: CooperativeScheduler,
        shared: RedisLevel | None = None,
    ) -> None:
        """The last four are of the process, whatever models answer; `shared` has the budgets of all replicas' keys."""
        self._runtimes, self._cache, self._combinations = runtimes, cache, combinations
        self._computing = {name: runtime.computes for name, runtime in runtimes.items()}
        self.admission, self._in_flight, self._cooperative = admission, in_flight, cooperative
        self._shared = shared

    async def answer(self, items: Sequence[Item]) -> list[Outcome]:
        """What each item's scorers say of it, in the order asked; a scorer that fails stands in `errors`.

        Raises OverloadedError, before any work, where there is no room for what has to be computed, or nothing left of
        the budget of the caller's key; which pays for what is admitted or known, and nothing else.
        """
        caller = CALLER.get()
        thresholds = {} if caller.preferences is None else dict(caller.preferences.thresholds)
        outcomes = [Outcome() for _ in items]
        draw = None
        if caller.budget is None or not items:
            pending = await self._look_up(items, outcomes)
        else:
            pending, draw = await self._look_up_paid(caller, items, outcomes)
        try:
            self._begin(pending, caller, draw)
            if caller.key_name is not None:
                caller.charge(len(items), is_paid=draw is not None)
            await _wait(pending)
            slices = TimeSlice(self._cooperative, is_large=len(items) >= LARGE_TURNS)
            for turn in pending:
                if len(items) > 1:  # a single one takes much less than a slice
                    await slices.pause()
                turn.assemble(thresholds)
            combinations = with_thresholds(self._combinations, thresholds) if thresholds else self._combinations
            if combinations or len(pending) > len(items):  # else the scores are in the order asked
                for item, outcome in zip(items, outcomes, strict=True):
                    add_combinations(item.asked, outcome, combinations)
        finally:
            for turn in pending:
                turn.leave()
        return outcomes

    async def _look_up_paid(
        self, caller: Caller, items: Sequence[Item], outcomes: Sequence[Outcome]
    ) -> tuple[list[PendingTurn], Draw | None]:
        """As `_look_up`, and what the budget of all replicas of the caller's key has paid.

        That is nothing where the Redis does not answer in time. Raises OverloadedError where no budget has a turn left.
        """
        budget, name, turns = caller.budget, caller.key_name, len(items)
        assert budget is not None
        assert name is not None
        caller.require_budget(turns)
        if self._shared is None:
            pending = await self._look_up(items, outcomes)
        else:  # at once, so that a slow Redis costs no more than it does without a budget
            draw = Draw(name, budget.turns_per_second, budget.burst, turns)
            left = min(each.deadline.expires_at for each in items) - time.monotonic()
            pending, drawn = await asyncio.gather(
                self._look_up(items, outcomes), self._shared.draw(draw, _CACHE_SHARE * left)
            )
            if drawn is None:
                metrics.KEY_LOCAL_REQUESTS.labels(name).inc()
            else:
                is_paid, level = drawn
                budget.adopt(level)
                if is_paid:
                    return pending, draw
        caller.require_budget(turns)  # again: others of the same key were answered meanwhile
        return pending, None

    def read_ahead(self, item: Item) -> None:
        """Begins to read the latest turn of the item's context, where scorers keep what they read; there is no answer.

        Takes room and its caller's turn in the queue as scoring does; where there is no room it is left.
        """
        share = CALLER.get().share
        asked: dict[ScorerRuntime, LoadedScorer] = {}  # of each pass, one of the scorers that the item asks
        for name in component_scorers(item.asked, self._combinations):
            own = item.versions.get(name, name)
            asked.setdefault(self._computing[own], self._runtimes[own].loaded)
        for runtime, loaded in asked.items():
            try:
                pack = runtime.loaded.scorer.read_ahead(item.turn_for(loaded))
                demands = {} if pack is None else {runtime.loaded.name: Demand(1, pack.real_tokens)}
                if pack is None or self.admission.refusal(demands, item.deadline, share) is not None:
                    continue
                reading = runtime.batcher.submit(pack, item.deadline)
            except ScoringError:  # scoring the reply will say so
                continue
            except Exception:
                _LOGGER.exception("reading ahead failed")
                continue
            runtime.jobs.begin()
            reading.add_done_callback(partial(_end_reading, runtime, self.admission.hold(demands, share)))

    async def _look_up(self, items: Sequence[Item], outcomes: Sequence[Outcome]) -> list[PendingTurn]:
        """What is asked of each scorer of each item, by pass, with what the cache knows; lets others in between.

        One round trip asks the shared level for all. Items share its time, which the one with the least left bounds.
        """
        pending: list[PendingTurn] = []
        lookups: list[PendingScore] = []
        hashes = TextHashes()
        slices = TimeSlice(self._cooperative, is_large=len(items) >= LARGE_TURNS)
        for item, outcome in zip(items, outcomes, strict=True):
            if len(items) > 1:
                await slices.pause()
            turns: dict[str, PendingTurn] = {}  # by pass
            for name in component_scorers(item.asked, self._combinations):
                own = item.versions.get(name, name)
                loaded = self._runtimes[own].loaded
                if (turn := turns.get(loaded.pass_key)) is None:
                    read, runtime = item.turn_for(loaded), self._computing[own]
                    turn = PendingTurn(read, loaded.scorer.inputs_of(read), item.deadline, outcome, runtime)
                    turns[loaded.pass_key] = turn
                each = PendingScore(loaded=loaded, asked=name)
                self._cache.look_up(each, turn.turn, turn.inputs, item.choice, hashes)
                turn.scores.append(each)
                lookups.append(each)
            pending += turns.values()
        started_at = time.monotonic()
        expires_at = min([each.deadline.expires_at for each in items], default=started_at)
        await self._cache.find(lookups, _CACHE_SHARE * (expires_at - started_at))
        took = time.monotonic() - started_at
        for outcome in outcomes:
            outcome.cache = took
        return pending

    def _begin(self, pending: Sequence[PendingTurn], caller: Caller, draw: Draw | None) -> None:
        """Has each wait for all that it lacks, and computes what is in flight for no other.

        Where there is no room for that, what was drawn is given back.
        """
        begun: dict[ScorerRuntime, list[InFlight]] = {}
        deadlines = []
        for turn in pending:
            for each in turn.scores:
                if each.missing:
                    self._join(turn, each)
            if turn.own is not None:
                begun.setdefault(turn.runtime, []).append(turn.own)
                deadlines.append(turn.deadline)
        if not begun:
            self.admission.note_known({turn.runtime.loaded.name for turn in pending}, caller.share)
            return
        demands = {}
        for runtime, works in begun.items():
            tokenizing = sum(map(attrgetter("chars"), works)) // _CHARS_PER_CHARGED_TOKEN
            tokens = sum([runtime.loaded.scorer.estimate_tokens(work.turn) for work in works]) + tokenizing
            demands[runtime.loaded.name] = Demand(len(works), tokens, tokenizing)
        try:
            reservation = self.admission.reserve(demands, max(deadlines, key=attrgetter("expires_at")), caller.share)
        except ScoringError:
            if draw is not None and self._shared is not None and caller.budget is not None:
                self._shared.give_back(draw)
                caller.budget.take(-draw.turns)
            raise
        for runtime, works in begun.items():
            ScoringJob(runtime, works, reservation, self._cache).begin()

    def _join(self, turn: PendingTurn, pending: PendingScore) -> None:
        """Has it wait for the fragments that it lacks: those that others compute, and its turn's own work."""
        key, fragments = pending.key, pending.fragments
        places: list[int] = []
        parts: dict[PendingScore, InFlight] = {}
        for place in pending.missing:
            if (held := self._in_flight.get((key, fragments[place]))) is None:
                places.append(place)
            else:
                work, part = held
                parts[part] = work
        if parts:
            metrics.CACHE_JOINS.labels(pending.loaded.name).inc()
        if places:
            asked = turn.turn
            if len(places) < len(fragments):
                asked, computed = pending.loaded.scorer.narrow(asked, places)
                fragments = tuple([fragments[place] for place in computed])
            if (own := turn.own) is None:  # the scorers of a pass are asked of the very same turn
                own = turn.own = InFlight(self._in_flight, asked, count_chars(turn.inputs))
            pending.computed = fragments
            own.parts.append(pending)
            for fragment in fragments if key is not None else ():
                # Those that others compute already stay theirs for the next caller.
                self._in_flight.setdefault((key, fragment), (own, pending))
            parts[pending] = own
        for work in parts.values():
            if work not in turn.works:
                work.waiting += 1
                turn.works.append(work)
                turn.joined_at = time.monotonic()
        pending.waits_for = tuple(parts)


def _end_reading(runtime: ScorerRuntime, reservation: Reservation, reading: "asyncio.Future[PackScores]") -> None:
    if not reading.cancelled():
        reading.exception()  # the batcher has logged it; the turn is read again when it is scored
    reservation.release(runtime.loaded.name)
    runtime.jobs.end()


async def _wait(pending: Sequence[PendingTurn]) -> None:
    """Returns when all work that is waited for is done; those that run out of time before that leave."""
    for expiry in sorted({turn.deadline.expires_at for turn in pending}):
        works = {work.done for turn in pending for work in turn.works if not work.is_done}
        if not works:
            return
        await asyncio.wait(works, timeout=max(0.0, expiry - time.monotonic()))
        for turn in pending:
            if turn.deadline.expires_at <= expiry and not all([work.is_done for work in turn.works]):  # noqa: C419
                turn.give_up()
