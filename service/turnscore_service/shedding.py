"""Shedding: while everything that is decoded is refused, most requests are refused undecoded. Pure; knows no door.

Decoding a request only to refuse it takes time from the turns that were admitted. So each refusal is kept as a witness:
what was asked for, and with how much time. While the witness would be refused again, some of those that come after it
and ask the scorer that it found full are shed, and then one is decoded again. Whatever else that scorer answers
meanwhile, from the cache or because it asks less, shows that decoding is worth its while: nothing is shed until there
have been enough refusals in a row again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from turnscore_service.admission import Admission, Demand, Refusal, Reservation
from turnscore_service.deadline import Deadline
from turnscore_service.errors import OverloadedError

REFUSALS_IN_A_ROW = 16
"""Before anything is shed. Chosen: where one request in five can be answered, 97 of 100 such rows are broken."""
SHED_A_WITNESS = 31
"""Shed for each refusal that was decoded: decoding then takes a thirty-second of what it took. Chosen."""


@dataclass(frozen=True, slots=True)
class _Witness:
    demands: Mapping[str, Demand]
    seconds: float
    """The time that the refused request had left."""


class Shedding:
    """Admission, with a memory of what it refused. Belongs to one event loop."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._witness: _Witness | None = None
        self._in_a_row = 0
        self._shed = 0

    def hold(self, demands: Mapping[str, Demand], deadline: Deadline) -> Reservation:
        """Holds room, or raises OverloadedError, as Admission does."""
        before = self._refusal()
        try:
            reservation = self._admission.hold(demands, deadline)
        except OverloadedError:
            self._witness = _Witness(demands, deadline.remaining_seconds())
            self._in_a_row += 1
            self._shed = 0
            raise
        if before is not None and before.scorer in demands:
            self._in_a_row = 0
        return reservation

    def note_known(self, scorers: set[str]) -> None:
        """A request was decoded that needs no room at these scorers: all is known, or being computed."""
        refusal = self._refusal()
        if refusal is not None and refusal.scorer in scorers:
            self._in_a_row = 0

    def full_scorer(self) -> str | None:
        """The scorer whose next request may be shed; None where none may."""
        if self._in_a_row < REFUSALS_IN_A_ROW or self._shed == SHED_A_WITNESS:
            return None
        refusal = self._refusal()
        return None if refusal is None else refusal.scorer

    def shed(self) -> OverloadedError | None:
        """The error for a request that asks the full scorer and has just come; None where it is to be decoded."""
        if self.full_scorer() is None or (refusal := self._refusal()) is None:
            return None
        self._shed += 1
        message = f"{refusal.scorer} has more work than it can do; this request was refused before it was decoded"
        return OverloadedError(message, retry_after_ms=refusal.error.retry_after_ms)

    def _refusal(self) -> Refusal | None:
        """Why the witness would be refused again; None where it would not, or where there is none."""
        if self._witness is None:
            return None
        return self._admission.refusal(self._witness.demands, Deadline.after_ms(1000 * self._witness.seconds))
