"""Fairness: whose turn it is among callers that wait for the same thing, and the event loop's time divided among them.

Fair queueing by what each caller has had (as in Start-time Fair Queueing: Goyal, Vin, Cheng, SIGCOMM 1996): the one who
has had least is served next, and a caller that begins to wait counts as having had as much as that one. So callers that
keep asking get equal parts, whatever they ask at once, and no one saves up for later.
"""

import asyncio
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from heapq import heappop, heappush
from itertools import count

from turnscore_service.auth.access import CALLER

# Callers remembered; beyond, the one that began to wait longest ago is forgotten, and counts as new.
MOST_CALLERS = 1024


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
        had, least = self._had, self._least
        caller = min(waiting, key=lambda each: had.get(each, least))
        self._least = max(least, had.get(caller, least))
        return caller

    def charge(self, caller: str, cost: float) -> None:
        """The caller is given so much."""
        self._had[caller] = self._had.get(caller, self._least) + cost


# Work done at once before all other work has its turn. Chosen: a turn that is scored meanwhile takes some eight rounds
# of the loop, each of which may hold a slice.
SLICE_SECONDS = 0.002
# From here on a request waits for a turn before anything of it is done. Chosen: what is smaller takes 1 ms or less.
LARGE_BYTES = 16 * 1024
LARGE_TURNS = 16


# The place of this task's request among all large ones, by when it first asked for the loop.
_PLACE: ContextVar[int | None] = ContextVar("turnscore_loop_place", default=None)


class CooperativeScheduler:
    """Decides which work may go on. Belongs to one event loop."""

    def __init__(self) -> None:
        # By caller, a heap: place of the request, and a number that differs for each of its parts.
        self._waiting: dict[str, list[tuple[int, int, asyncio.Future[None]]]] = {}
        self._numbers = count()
        self._order = FairOrder()
        self._is_due = False

    async def turn(self, *, is_new: bool = False) -> None:
        """Returns when this task may take the loop for a slice: new work after all that its caller has asked."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        caller = CALLER.get().share
        number = next(self._numbers)
        if (place := _PLACE.get()) is None or is_new:
            _PLACE.set(place := number)
        if caller not in self._waiting:
            self._waiting[caller] = []
            self._order.join(caller)
        heappush(self._waiting[caller], (place, number, turn))
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        self._is_due = False
        while self._waiting:
            caller = self._order.choose(self._waiting)
            _, _, turn = heappop(self._waiting[caller])
            if not self._waiting[caller]:
                del self._waiting[caller]
            if not turn.done():
                self._order.charge(caller, SLICE_SECONDS)
                turn.set_result(None)
                break
        if self._waiting:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._give)


@dataclass(slots=True)
class TimeSlice:
    """One piece of work, to be paused between its parts. Work that waits for something else then begins another."""

    cooperative: CooperativeScheduler
    _: KW_ONLY
    is_large: bool
    ends_at: float | None = field(default=None, init=False)

    async def pause(self) -> None:
        """Called before each part: waits for a turn if the slice is used up, as that of large work is before its first.

        Else returns at once.
        """
        now = time.perf_counter()
        if self.is_large if self.ends_at is None else now >= self.ends_at:
            await self.cooperative.turn()
            self.ends_at = time.perf_counter() + SLICE_SECONDS
        elif self.ends_at is None:
            self.ends_at = now + SLICE_SECONDS
