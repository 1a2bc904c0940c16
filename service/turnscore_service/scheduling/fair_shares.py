"""Fair shares: whose turn it is among callers that wait for the same thing. Pure; a caller is a name to it.

Fair queueing by what each caller has had (as in Start-time Fair Queueing: Goyal, Vin, Cheng, SIGCOMM 1996): the one who
has had least is served next, and a caller that begins to wait counts as having had as much as that one. So callers that
keep asking get equal parts, whatever they ask at once, and nobody saves up for later.
"""

from collections.abc import Iterable

MOST_CALLERS = 1024
"""Callers remembered; beyond, the one that began to wait longest ago is forgotten, and counts as new. Chosen."""


class FairOrder:
    """What each caller has had. Belongs to one event loop."""

    def __init__(self) -> None:
        self._least = 0.0
        self._had: dict[str, float] = {}

    def join(self, caller: str) -> None:
        """A caller who was not waiting begins to wait."""
        self._had[caller] = max(self._least, self._had.pop(caller, 0.0))
        if len(self._had) > MOST_CALLERS:
            del self._had[next(iter(self._had))]

    def choose(self, waiting: Iterable[str]) -> str:
        """Whose turn it is among those who wait; of equals, the first."""
        caller = min(waiting, key=self._had_by)
        self._least = max(self._least, self._had_by(caller))
        return caller

    def charge(self, caller: str, cost: float) -> None:
        """The caller is given so much."""
        self._had[caller] = self._had_by(caller) + cost

    def _had_by(self, caller: str) -> float:
        return self._had.get(caller, self._least)
