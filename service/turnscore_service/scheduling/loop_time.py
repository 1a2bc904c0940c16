"""Loop time: the event loop's own time, divided among requests that need much of it, so that it is never silent long.

Work that takes longer than a slice pauses after each one and waits for its turn; the loop gives one turn each time it
comes round, callers in fair order, and does everything else in between. Small requests never wait for a turn.

Of one caller's requests the one that began first goes on first: were all of them half done, each would hold its turns
in memory for as long as the last one, and the garbage collector would walk through all of them.
"""

import asyncio
import time
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count

from turnscore_service.auth.access import CALLER
from turnscore_service.scheduling.fair_shares import FairOrder

SLICE_SECONDS = 0.002
"""Work done at once before all other work has its turn. Chosen: a turn that is scored meanwhile takes some eight
rounds of the loop, each of which may hold a slice."""
LARGE_BYTES = 16 * 1024
LARGE_TURNS = 16
"""From here on a request waits for a turn before anything of it is done. Chosen: what is smaller takes 1 ms or less."""


_PLACE: ContextVar[int | None] = ContextVar("turnscore_loop_place", default=None)
"""The place of this task's request among all large ones, by when it first asked for the loop."""


class LoopTime:
    """Decides which work may go on. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, int, asyncio.Future[None]]]] = {}
        """By caller, a heap: place of the request, and a number that differs for each of its parts."""
        self._numbers = count()
        self._order = FairOrder()
        self._is_due = False

    def slices(self, *, is_large: bool) -> "Slices":
        """The slices of one piece of work; a large one begins with waiting for its turn."""
        return Slices(self, is_large=is_large)

    async def turn(self) -> None:
        """Returns when this task may take the loop for a slice."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        caller = CALLER.get().share
        number = next(self._numbers)
        if (place := _PLACE.get()) is None:
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
        is_given = False
        while self._waiting and not is_given:
            caller = self._order.choose(self._waiting)
            _, _, turn = heappop(self._waiting[caller])
            if not self._waiting[caller]:
                del self._waiting[caller]
            if not turn.done():
                self._order.charge(caller, SLICE_SECONDS)
                turn.set_result(None)
                is_given = True
        if self._waiting:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._give)


class Slices:
    """One piece of work, to be paused between its parts."""

    def __init__(self, loop_time: LoopTime, *, is_large: bool) -> None:
        self.is_large = is_large
        self._loop_time = loop_time
        self.renew()

    def renew(self) -> None:
        """Begins anew, after the work has waited for something else: the time that it waited was others'."""
        self._ends_at = 0.0 if self.is_large else time.perf_counter() + SLICE_SECONDS

    async def pause(self) -> None:
        """Called before each part: waits for a turn if the slice is used up; else returns at once."""
        if time.perf_counter() >= self._ends_at:
            await self._loop_time.turn()
            self._ends_at = time.perf_counter() + SLICE_SECONDS
