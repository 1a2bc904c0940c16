"""Shedding: while everything that is decoded is refused, most requests are refused undecoded. Pure; knows no door.

Decoding a request only to refuse it takes time from the turns that were admitted. So each refusal is kept as a witness
for its caller: what was asked for, and with how much time. While the witness would be refused again, some of those that
come after it and ask the scorer that it found full are shed, and then one is decoded again. If this scorer answers
another request of this caller meanwhile, from the cache or because it asks less, decoding pays: nothing is shed until
there have been enough refusals in a row again. One caller's refusals say nothing about another's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import LRUCache
from turnscore_core.deadline import Deadline
from turnscore_core.errors import OverloadedError

from turnscore_service.scheduling.admission import Admission, Demand, Refusal, Reservation
from turnscore_service.scheduling.answered_bodies import WAS_ANSWERED

REFUSALS_IN_A_ROW = 16
"""Before anything is shed. Chosen: where one request in five can be answered, 97 of 100 such rows are broken."""
SHED_PER_WITNESS = 31
"""Shed for each refusal that was decoded: decoding then takes a thirty-second of what it took. Chosen."""


MOST_CALLERS = 1024
"""Callers whose refusals are remembered; beyond, the one silent for longest is forgotten. Chosen."""


@dataclass(frozen=True, slots=True)
class _Witness:
    demands: Mapping[str, Demand]
    seconds: float
    """The time that the refused request had left."""


@dataclass(slots=True)
class _Row:
    """One caller's refusals in a row, the latest of which is the witness."""

    witness: _Witness
    in_a_row: int = 0
    shed: int = 0


class Shedding:
    """Admission, with a memory of what it refused to each caller. Belongs to one event loop."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self._rows: LRUCache[str, _Row] = LRUCache(MOST_CALLERS)

    def hold(self, demands: Mapping[str, Demand], deadline: Deadline, caller: str = "") -> Reservation:
        """Holds room, or raises OverloadedError, as Admission does."""
        row = self._rows.get(caller)
        before = None if row is None else self._refusal(row, caller)
        try:
            reservation = self.admission.hold(demands, deadline, caller)
        except OverloadedError:
            witness = _Witness(demands, deadline.remaining_seconds())
            row = self._rows.setdefault(caller, _Row(witness))
            row.witness = witness
            row.in_a_row += 1
            row.shed = 0
            raise
        if before is not None and before.scorer in demands:
            del self._rows[caller]
        return reservation

    def note_known(self, scorers: set[str], caller: str = "") -> None:
        """A request was decoded that needs no room at these scorers: all is known, or being computed.

        One that was decoded because it was answered before says nothing about the others.
        """
        row = None if WAS_ANSWERED.get() else self._rows.get(caller)
        refusal = None if row is None else self._refusal(row, caller)
        if refusal is not None and refusal.scorer in scorers:
            del self._rows[caller]

    def has_refused(self) -> bool:
        """Whether a caller's latest requests were refused, and none since was answered."""
        return bool(self._rows)

    def full_scorer(self, caller: str = "") -> str | None:
        """The scorer whose next request by this caller may be shed; None where none may."""
        row = self._rows.get(caller)
        if row is None or row.in_a_row < REFUSALS_IN_A_ROW or row.shed == SHED_PER_WITNESS:
            return None
        refusal = self._refusal(row, caller)
        return None if refusal is None else refusal.scorer

    def shed(self, caller: str = "") -> OverloadedError | None:
        """The error for a request that asks the full scorer and has just come; None if it should be decoded."""
        row = self._rows.get(caller)
        if row is None or self.full_scorer(caller) is None or (refusal := self._refusal(row, caller)) is None:
            return None
        row.shed += 1
        message = f"{refusal.scorer} has more work than it can do; this request was refused before it was decoded"
        return OverloadedError(message, retry_after_ms=refusal.error.retry_after_ms)

    def _refusal(self, row: _Row, caller: str) -> Refusal | None:
        """Why the witness would be refused again; None where it would not."""
        deadline = Deadline.after_ms(1000 * row.witness.seconds)
        return self.admission.refusal(row.witness.demands, deadline, caller)
