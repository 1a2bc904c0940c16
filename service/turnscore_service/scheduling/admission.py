"""Admission: whether there is room for more work, and while there is none, which requests are refused undecoded."""

from collections import OrderedDict
from collections.abc import Callable, Container, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from cachetools import LRUCache
from turnscore_core.errors import OverloadedError
from turnscore_core.scoring import Deadline

from turnscore_service import metrics
from turnscore_service.settings.service import AdmissionSettings

_RETRY_MS = (20, 10_000)  # least and greatest advice to a refused caller
_SHARE_OF_DEADLINE = 0.7  # the largest share of the time left that the queue may take: the rest is for the turn itself
_SHARE_WEIGHT = 0.1  # weight of the latest request in the ratio of real to estimated tokens
_UNKNOWN_RETRY_MS = 1000  # the advice while the drain rate is unknown


@dataclass(slots=True)
class Demand:
    """Work for one scorer: turns, and their estimated tokens."""

    items: int = 0
    tokens: int = 0
    tokenizing: int = 0  # of the tokens, those that stand for the cost of tokenizing


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first scorer that has no room or no time, which of the two it lacks, and the error that says so."""

    scorer: str
    reason: Literal["full", "deadline"]
    error: OverloadedError


@dataclass(slots=True)
class Reservation:
    """Room held for one request of one caller, given back scorer by scorer."""

    admission: "Admission"
    held: dict[str, Demand]
    caller: str = ""

    def observe_tokens(self, scorer: str, real: int) -> None:
        """Notes what tokenizing made of the estimate for one scorer, so that later ones can be trusted as times."""
        if demand := self.held.get(scorer):
            shares, share = self.admission.real_shares, (real + demand.tokenizing) / max(1, demand.tokens)
            known = shares.get(scorer, share)
            shares[scorer] = known + _SHARE_WEIGHT * (share - known)

    def release(self, scorer: str) -> None:
        """Gives back what is held for one scorer; once."""
        if demand := self.held.pop(scorer, None):
            self.admission.change(scorer, -demand.items, -demand.tokens, self.caller)


# Before anything is shed. Chosen: where one request in five can be answered, 97 of 100 such rows are broken.
REFUSALS_IN_A_ROW = 16
SHED_PER_WITNESS = 31  # shed for each refusal that was decoded: decoding then takes a thirty-second of what it took
MOST_REFUSED_CALLERS = 1024  # callers whose refusals are remembered; beyond, the one silent for longest is forgotten

# Whether the request of this task was decoded only because an equal one was answered.
KNOWN_REQUEST: ContextVar[bool] = ContextVar("turnscore_was_answered", default=False)


@dataclass(slots=True)
class _Row:
    """One caller's refusals in a row; of the latest what it asked for, and the seconds that it had left."""

    demands: Mapping[str, Demand]
    seconds: float
    in_a_row: int = 0
    shed: int = 0


class Admission:
    """Room for turns and tokens in one process, and what was refused to each caller. Belongs to one event loop."""

    def __init__(
        self, settings: AdmissionSettings, paces: Mapping[str, Callable[[], float | None]] | None = None
    ) -> None:
        """`paces` returns for each scorer the seconds that a token took in the latest batches, or None if unknown."""
        self._settings = settings
        self._paces = dict(paces or {})
        self._in_flight: dict[str, Demand] = {}
        # What each caller has in flight, by scorer; callers with nothing in flight are left out.
        self._callers: dict[str, dict[str, Demand]] = {}
        self.real_shares: dict[str, float] = {}  # by scorer, what tokenizing makes of an estimated token
        self._rows: LRUCache[str, _Row] = LRUCache(MOST_REFUSED_CALLERS)

    def track(self, scorer: str, pace: Callable[[], float | None]) -> None:
        """From here on takes the scorer's pace from there, and learns again what its tokenizer makes of estimates."""
        self._paces[scorer] = pace
        self.real_shares.pop(scorer, None)

    def keep_only(self, scorers: Container[str]) -> None:
        """Forgets the paces of all others, which no longer compute, and with them their models."""
        for gone in [each for each in self._paces if each not in scorers]:
            del self._paces[gone]
            self.real_shares.pop(gone, None)

    def reserve(self, demands: Mapping[str, Demand], deadline: Deadline, caller: str = "") -> Reservation:
        """Holds room for the whole request, to be given back scorer by scorer, or raises OverloadedError.

        Raises it as well where the queue of a scorer is longer than the time left: the answer would come too late. A
        request that finds nothing else in flight for its scorers is always admitted: the limits bound what waits
        together. One caller may take all the room; the others then find as much again, of which each may have an equal
        part.
        """
        row = self._rows.get(caller)
        before = None if row is None else self._refuse_again(row, caller)
        if (refused := self.refusal(demands, deadline, caller)) is not None:
            metrics.REFUSED_ITEMS.labels(refused.scorer, refused.reason).inc(demands[refused.scorer].items)
            in_a_row = 0 if row is None else row.in_a_row
            self._rows[caller] = _Row(demands, deadline.remaining_seconds(), in_a_row + 1)
            raise refused.error
        if before is not None and before.scorer in demands:
            del self._rows[caller]
        for scorer, demand in demands.items():
            metrics.ADMITTED_ITEMS.labels(scorer).inc(demand.items)
        return self.hold(demands, caller)

    def hold(self, demands: Mapping[str, Demand], caller: str = "") -> Reservation:
        """Holds room, whether there is any or not, and counts no turns."""
        for scorer, demand in demands.items():
            self.change(scorer, demand.items, demand.tokens, caller)
        return Reservation(self, dict(demands), caller)

    def refusal(self, demands: Mapping[str, Demand], deadline: Deadline, caller: str = "") -> Refusal | None:
        """Why `reserve` would refuse at this moment; None where it would not. Takes no room and counts nothing."""
        for scorer, demand in demands.items():
            held = self._in_flight.get(scorer)
            if held is None or not held.items:
                continue
            wait = self.expected_wait_seconds(scorer, caller, demand.tokens)
            settings = self._settings
            excess_items = held.items + demand.items - settings.max_items
            excess_tokens = held.tokens + demand.tokens - settings.max_tokens
            if (excess_items > 0 or excess_tokens > 0) and not self._is_owed(scorer, demand, caller):
                share = max(excess_items / held.items, excess_tokens / max(1, held.tokens))
                message = f"too much work for {scorer} is in flight"
                return Refusal(scorer, "full", OverloadedError(message, retry_after_ms=_advice(wait, share)))
            remaining = _SHARE_OF_DEADLINE * deadline.remaining_seconds()
            if wait is not None and wait > remaining > 0:
                message = f"the queue of {scorer} is longer than the deadline"
                advice = _advice(wait - remaining, 1)
                return Refusal(scorer, "deadline", OverloadedError(message, retry_after_ms=advice))
        return None

    def note_known(self, scorers: set[str], caller: str = "") -> None:
        """A request was decoded that needs no room at these scorers: all is known, or being computed.

        One that was decoded because it was answered before says nothing about the others.
        """
        row = None if KNOWN_REQUEST.get() else self._rows.get(caller)
        refusal = None if row is None else self._refuse_again(row, caller)
        if refusal is not None and refusal.scorer in scorers:
            del self._rows[caller]

    def would_shed(self, caller: str = "") -> Refusal | None:
        """Why the caller's next request for a scorer may be shed; None where none may."""
        row = self._rows.get(caller)
        if row is None or row.in_a_row < REFUSALS_IN_A_ROW or row.shed == SHED_PER_WITNESS:
            return None
        return self._refuse_again(row, caller)

    def shed(self, caller: str = "") -> OverloadedError | None:
        """The error for a request that asks the full scorer and has just come; None if it should be decoded."""
        if (refusal := self.would_shed(caller)) is None:
            return None
        self._rows[caller].shed += 1
        message = f"{refusal.scorer} has more work than it can do; this request was refused before it was decoded"
        return OverloadedError(message, retry_after_ms=refusal.error.retry_after_ms)

    def _refuse_again(self, row: _Row, caller: str) -> Refusal | None:
        """Why the latest refused request would be refused again; None where it would not."""
        return self.refusal(row.demands, Deadline.after_ms(1000 * row.seconds), caller)

    def has_work(self) -> bool:
        return any(held.items for held in self._in_flight.values())

    def expected_wait_seconds(self, scorer: str, caller: str = "", tokens: int = 0) -> float | None:
        """Seconds until so many more tokens of the caller's are begun; None before the scorer's first batch.

        That is when everything in flight for the scorer is done, or, since callers take turns, when the caller's own is
        and as much of each of the others'. Counts what is admitted, not only what is queued: a burst is in flight
        before its first turn is tokenized.
        """
        pace = self._paces[scorer]() if scorer in self._paces else None
        if pace is None:
            return None
        held = self._in_flight.get(scorer, Demand())
        callers = self._callers.get(scorer, {})
        own = callers[caller].tokens if caller in callers else 0
        others = len(callers) - (caller in callers)
        before = min(held.tokens, own + others * (own + tokens))
        return pace * before * self.real_shares.get(scorer, 1.0)

    def change(self, scorer: str, items: int, tokens: int, caller: str = "") -> None:
        """Adds to what is in flight, or takes from it."""
        held = self._in_flight.setdefault(scorer, Demand())
        callers = self._callers.setdefault(scorer, {})
        for demand in (held, callers.setdefault(caller, Demand())):
            demand.items += items
            demand.tokens += tokens
        if not callers[caller].items:
            del callers[caller]
        metrics.ITEMS_IN_FLIGHT.labels(scorer).set(held.items)
        metrics.TOKENS_IN_FLIGHT.labels(scorer).set(held.tokens)

    def _is_owed(self, scorer: str, demand: Demand, caller: str) -> bool:
        """Whether there is room for this caller beyond what the others have taken: an equal part of all there is."""
        settings, held, callers = self._settings, self._in_flight[scorer], self._callers[scorer]
        if callers.keys() <= {caller}:
            return False
        own = callers.get(caller, Demand())
        parts = len(callers) + (caller not in callers)
        is_within = own.items + demand.items <= settings.max_items / parts
        is_within = is_within and own.tokens + demand.tokens <= settings.max_tokens / parts
        return (
            (is_within or not own.items)
            and held.items + demand.items <= 2 * settings.max_items
            and held.tokens + demand.tokens <= 2 * settings.max_tokens
        )


def _advice(wait_seconds: float | None, share: float) -> int:
    """Milliseconds until that share of the queue is done, from the rate at which the queue drains."""
    if wait_seconds is None:
        return _UNKNOWN_RETRY_MS
    least, greatest = _RETRY_MS
    return int(min(greatest, max(least, 1000 * wait_seconds * min(1.0, share))))


MOST_BODIES = 16_384  # some 3 MiB of hashes. Chosen: beyond, the oldest answers are forgotten
_BODY_HASH_BYTES = 16


class RecentRequests:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[bytes, None] = OrderedDict()

    def note(self, body: bytes, *, is_answered: bool) -> None:
        """Remembers a body that was answered; forgets one that was not."""
        hashed = blake2b(body, digest_size=_BODY_HASH_BYTES).digest()
        self._hashes.pop(hashed, None)
        if is_answered:
            self._hashes[hashed] = None
            if len(self._hashes) > MOST_BODIES:
                self._hashes.popitem(last=False)

    def clear(self) -> None:
        """Forgets all: the models are others, and the cache has none of their scores."""
        self._hashes.clear()

    def __contains__(self, body: bytes) -> bool:
        return blake2b(body, digest_size=_BODY_HASH_BYTES).digest() in self._hashes
