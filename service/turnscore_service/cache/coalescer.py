"""Coalescing: lookups that arrive while others are on their way go together in the next round trip.

Bounds how many round trips are under way, so that a slow Redis is not flooded, and asks for more at once the busier the
service is.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Entries = Sequence[bytes | None]
Load = Callable[[Sequence[str]], Awaitable[Entries | None]]

_MAX_KEYS = 1024
"""In one round trip, unless one lookup alone has more: some 100 kB of FED's entries each way. Chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class _Wish:
    keys: Sequence[str]
    future: "asyncio.Future[Entries | None]"


class Coalescer:
    """Lookups of one process. Belongs to one event loop."""

    def __init__(self, load: Load, lanes: int) -> None:
        """`load` must not raise; at most `lanes` of it run at once."""
        self._load = load
        self._lanes = lanes
        self._wishes: deque[_Wish] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def fetch(self, keys: Sequence[str], seconds: float) -> Entries | None:
        """The entries in the order of `keys`; None where they cannot be had, or not within that time."""
        wish = _Wish(keys, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        self._begin()
        try:
            async with asyncio.timeout(seconds):
                return await wish.future
        except TimeoutError:
            return None

    def _begin(self) -> None:
        while self._wishes and len(self._running) < self._lanes:
            if wishes := self._take():
                task = asyncio.create_task(self._serve(wishes))
                self._running.add(task)
                task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._begin()

    def _take(self) -> list[_Wish]:
        """As many lookups as one round trip takes, without those that no caller waits for any more."""
        taken: list[_Wish] = []
        count = 0
        while self._wishes and (not taken or count + len(self._wishes[0].keys) <= _MAX_KEYS):
            wish = self._wishes.popleft()
            if not wish.future.done():
                taken.append(wish)
                count += len(wish.keys)
        return taken

    async def _serve(self, wishes: Sequence[_Wish]) -> None:
        entries = await self._load([key for wish in wishes for key in wish.keys])
        place = 0
        for wish in wishes:
            if not wish.future.done():
                wish.future.set_result(entries and entries[place : place + len(wish.keys)])
            place += len(wish.keys)
