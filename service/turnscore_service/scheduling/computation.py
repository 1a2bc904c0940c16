"""Computing: turns of one request for one scorer through tokenizer and batcher, for the callers that wait for them.

Knows no caller: it goes on while a flight is wanted, and takes unwanted turns out of the queue.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from turnscore_core.errors import FailedScoringError, ScoringError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.parts import ScorePart
from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_core.scoring import PieceCollector
from turnscore_wire import TokenCount

from turnscore_service import metrics
from turnscore_service.scheduling.batch_queue import PackScores
from turnscore_service.scheduling.batcher import Batcher, expire
from turnscore_service.scheduling.flights import Computed, Flight
from turnscore_service.scheduling.open_work import OpenWork
from turnscore_service.scheduling.tokenizer_stage import Encoded, Tokenizing

_LOGGER = logging.getLogger("turnscore.computing")


@dataclass(frozen=True, slots=True)
class Workshop:
    """One scorer with what it takes to run it."""

    loaded: LoadedScorer
    tokenizing: Tokenizing
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


class Computation:
    """The turns of one request that no other request computes. Belongs to one event loop."""

    def __init__(
        self,
        workshop: Workshop,
        flights: Sequence[Flight],
        on_tokenized: Callable[[int], None],
        on_done: Callable[[], None],
    ) -> None:
        """`on_tokenized` gets the number of tokens.

        `on_done` is called once, when nothing of it is being computed any more.
        """
        self._workshop = workshop
        self._flights = flights
        self._on_tokenized = on_tokenized
        self._on_done = on_done
        self._started_at = time.monotonic()
        self._tokenize_seconds = 0.0
        self._submitted = 0
        self._collector = PieceCollector(workshop.loaded.scorer)

    def begin(self) -> None:
        """Tokenizes, and goes on from there in callbacks of the event loop."""
        self._workshop.computations.begin()
        tokenizing, turns = self._workshop.tokenizing, [flight.turn for flight in self._flights]
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
        metrics.TOKENIZE_SECONDS.labels(self._workshop.loaded.name).observe(self._tokenize_seconds)
        self._on_tokenized(sum(pack.real_tokens for pack in packs))
        for place, error in failed.items():
            self._land(error, [place])
        for pack in packs:
            if self._is_wanted(pack.answers):
                self._submit(pack)

    def _submit(self, pack: TokenPack) -> None:
        # No deadline: the callers that wait say for how long, and one may join that has more time than the first.
        future = self._workshop.batcher.submit(pack)
        self._stop_unwanted(pack.answers, lambda expired: expire(future) if expired else future.cancel())
        future.add_done_callback(lambda _: self._end(pack, future))
        self._submitted += 1

    def _end(self, pack: TokenPack, done: "asyncio.Future[PackScores]") -> None:
        self._deliver(pack, done)
        self._submitted -= 1
        if not self._submitted:
            self._end_all()

    def _end_all(self) -> None:
        self._workshop.computations.end()
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

    def _finish(self, flight: Flight, raw: RawScore, tokens: TokenCount, scores: PackScores) -> None:
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
