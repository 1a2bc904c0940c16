"""Reads and writes the cache that processes share: a Redis that may fail at any time. Raises nothing into a request.

Reads are bounded in time and go together: lookups that arrive while others are on their way share the next round trip.
Writes follow the answers, together. Each has its own circuit breaker, since a Redis that is full or read-only still
answers. While a breaker is open no caller waits: the Redis is probed in the background.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, Literal, TypeVar

from turnscore_core.score_entries import PROBE_KEY, mark_key

from turnscore_service import metrics
from turnscore_service.cache.redis_client import Draw, Drawn, EntryStore, PendingWrite, cause_of
from turnscore_service.settings.cache import CacheSettings

State = Literal["closed", "half_open", "open"]

_STATE_NUMBERS: dict[State, int] = {"closed": 0, "half_open": 1, "open": 2}
_LOGGER = logging.getLogger("turnscore.cache")


class Breaker:
    """The breaker of one kind of operation. Begins open: the first probe closes it. Belongs to one event loop."""

    def __init__(self, operation: str, settings: CacheSettings) -> None:
        self.operation = operation
        self._settings = settings
        self._recent: deque[bool] = deque(maxlen=settings.breaker_window)
        self._openings = 0
        self.opened = asyncio.Event()
        self.state: State = "open"
        self._become("open")

    @property
    def is_closed(self) -> bool:
        return self.state == "closed"

    def record(self, *, has_failed: bool, cause: str = "") -> None:
        """Notes how a call ended; what was begun before the breaker opened no longer counts."""
        if not self.is_closed:
            return
        self._recent.append(has_failed)
        if sum(self._recent) >= self._settings.breaker_failures:
            self._openings += 1
            self._warn(cause)
            self._become("open")
        elif not has_failed and len(self._recent) == self._recent.maxlen:
            self._openings = 0

    def trip(self) -> None:
        """Opens it where it is closed: a probe has to pass before it is used again."""
        if self.is_closed:
            self._become("open")

    def pause_seconds(self) -> float:
        """How long not to use the Redis: doubled each time it opens again without having worked in between."""
        if not self._openings:
            return 0.0
        doubled = self._settings.breaker_retry_seconds * 2.0 ** min(self._openings - 1, 30)
        return min(doubled, self._settings.breaker_max_retry_seconds)

    def begin_probe(self) -> None:
        self._become("half_open")

    def end_probe(self, *, has_failed: bool, cause: str = "") -> None:
        """Closes it, or opens it again for longer."""
        if has_failed:
            if not self._openings:
                self._warn(cause)
            self._openings += 1
            self._become("open")
            return
        _LOGGER.info("the shared cache is in use", extra={"operation": self.operation})
        self._recent.clear()
        self._become("closed")

    def _warn(self, cause: str) -> None:
        _LOGGER.warning("the shared cache is not used for now: %s", cause, extra={"operation": self.operation})

    def _become(self, state: State) -> None:
        self.state = state
        if state == "open":
            self.opened.set()
        else:
            self.opened.clear()
        metrics.CACHE_BREAKER.labels(self.operation).set(_STATE_NUMBERS[state])


Entries = Sequence[bytes | None]
_Asked = TypeVar("_Asked")
_Found = TypeVar("_Found")

_MAX_KEYS = 1024  # in one round trip, unless a single lookup has more: some 100 kB of FED's entries each way


@dataclass(frozen=True, slots=True, eq=False)
class _Wish(Generic[_Asked, _Found]):
    keys: Sequence[_Asked]
    future: "asyncio.Future[Sequence[_Found] | None]"


class Coalescer(Generic[_Asked, _Found]):
    """Lookups, or draws, of one process. Belongs to one event loop."""

    def __init__(
        self, load: Callable[[Sequence[_Asked]], Awaitable[Sequence[_Found] | None]], connections: int
    ) -> None:
        """`load` must not raise; at most `connections` of it run at once."""
        self._load = load
        self._connections = connections
        self._wishes: deque[_Wish[_Asked, _Found]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def ask(self, keys: Sequence[_Asked]) -> "asyncio.Future[Sequence[_Found] | None]":
        """As `fetch`, without a bound on time; nobody has to wait for it."""
        wish: _Wish[_Asked, _Found] = _Wish(keys, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        self._begin()
        return wish.future

    async def fetch(self, keys: Sequence[_Asked], seconds: float) -> Sequence[_Found] | None:
        """The entries in the order of `keys`; None where they cannot be had, or not within that time."""
        try:
            async with asyncio.timeout(seconds):
                return await self.ask(keys)
        except TimeoutError:
            return None

    def _begin(self) -> None:
        while self._wishes and len(self._running) < self._connections:
            if wishes := self._take():
                task = asyncio.create_task(self._serve(wishes))
                self._running.add(task)
                task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._begin()

    def _take(self) -> list[_Wish[_Asked, _Found]]:
        """As many lookups as one round trip takes, without those that no caller waits for any more."""
        taken: list[_Wish[_Asked, _Found]] = []
        count = 0
        while self._wishes and (not taken or count + len(self._wishes[0].keys) <= _MAX_KEYS):
            wish = self._wishes.popleft()
            if not wish.future.done():
                taken.append(wish)
                count += len(wish.keys)
        return taken

    async def _serve(self, wishes: Sequence[_Wish[_Asked, _Found]]) -> None:
        entries = await self._load([key for wish in wishes for key in wish.keys])
        place = 0
        for wish in wishes:
            if not wish.future.done():
                wish.future.set_result(entries and entries[place : place + len(wish.keys)])
            place += len(wish.keys)


Write = Callable[[Mapping[str, PendingWrite]], Awaitable[None]]


class WriteBehind:
    """The writes of one process. Belongs to one event loop."""

    def __init__(self, write: Write, max_pending: int, delay_seconds: float) -> None:
        """`write` must not raise; one runs at a time."""
        self._write = write
        self._max_pending = max_pending
        self._delay_seconds = delay_seconds
        self._pending: dict[str, PendingWrite] = {}
        self._is_due = asyncio.Event()

    def put(self, key: str, entry: bytes, ttl_ms: int) -> None:
        """Takes the entry, in place of one of that key that still waits; drops it where too many wait."""
        if len(self._pending) >= self._max_pending and key not in self._pending:
            metrics.CACHE_DROPPED_WRITES.labels("full").inc()
            return
        self._pending[key] = PendingWrite(entry, ttl_ms)
        self._is_due.set()

    async def run(self) -> None:
        """Writes entries as they are put, until it is cancelled."""
        while True:
            await self._is_due.wait()
            await asyncio.sleep(self._delay_seconds)
            await self.flush()

    async def flush(self) -> None:
        self._is_due.clear()
        while self._pending:
            batch = dict(islice(self._pending.items(), 256))  # in one round trip: some 150 kB of FED's entries
            for key in batch:
                del self._pending[key]
            await self._write(batch)


_CONNECT_SECONDS = 1.0  # for a probe to open all connections, in the background; a lookup then finds them open
_STOP_SECONDS = 0.5  # time to write waiting entries when the process ends

_PROBE_KEYS = [PROBE_KEY] * 3  # several keys, like a lookup: a server with one answer to everything does not pass
_PROBE_DRAW = Draw(":probe", turns_per_second=1.0, burst=1, turns=0)  # no key can have that name

_Result = TypeVar("_Result")


class RedisLevel:
    """Entries in a Redis. Belongs to one event loop."""

    def __init__(self, store: EntryStore, settings: CacheSettings) -> None:
        self._store = store
        self._settings = settings
        self._timeout_seconds = settings.timeout_ms / 1000
        self._reading = Breaker("read", settings)
        self._writing = Breaker("write", settings)
        self._drawing: Breaker | None = None  # made by the first key with a rate
        self._lookups: Coalescer[str, bytes | None] = Coalescer(self._read, settings.connections)
        self._draws: Coalescer[Draw, Drawn] = Coalescer(self._draw, 1)
        self._writes = WriteBehind(self._write, settings.max_pending_writes, settings.write_delay_ms / 1000)
        self._tasks: list[asyncio.Task[None]] = []
        self._models: Sequence[str] = ()
        self._on_mark: Callable[[str, bytes], object] = lambda *_: None

    def start(self, models: Sequence[str], on_mark: Callable[[str, bytes], object]) -> None:
        """Begins to connect. `on_mark` gets the mark of each of the models before anything is read, and then often:

        at the latest `clear_poll_seconds` after it has changed, while the Redis is in use.
        """
        self._models, self._on_mark = models, on_mark
        self._tasks = [
            asyncio.create_task(self._keep_probing(self._reading, self._probe_reading)),
            asyncio.create_task(self._keep_probing(self._writing, self._probe_writing)),
            asyncio.create_task(self._writes.run()),
            asyncio.create_task(self._keep_reading_marks()),
        ]

    async def follow(self, models: Sequence[str], on_mark: Callable[[str, bytes], object]) -> None:
        """From here on gives the marks of these models to `on_mark`, and each once before it returns.

        Where they cannot be read, the Redis is not used until they have been: nothing is found that was cleared.
        """
        self._models, self._on_mark = models, on_mark
        if self._reading.is_closed and await self._attempt(self._reading, self._read_marks()) is None:
            self._reading.trip()

    async def stop(self) -> None:
        """Writes waiting entries, for a moment, and closes the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._writes.flush()
                await self._store.close()
        except Exception as error:
            _LOGGER.info("closing the shared cache failed: %s", cause_of(error))

    async def fetch(self, keys: Sequence[str], seconds: float) -> Entries | None:
        """The entries in the order of `keys`; None at once while the Redis is not used, or after the time allowed."""
        if not self._reading.is_closed:
            return None
        return await self._lookups.fetch(keys, min(seconds, self._timeout_seconds))

    def put(self, key: str, entry: bytes, ttl_ms: int) -> None:
        """Takes the entry to be written later; drops it while the Redis takes none, or where too many wait."""
        if self._writing.is_closed:
            self._writes.put(key, entry, ttl_ms)
        else:
            metrics.CACHE_DROPPED_WRITES.labels("open").inc()

    async def draw(self, draw: Draw, seconds: float) -> Drawn | None:
        """What came of it; None at once while the Redis is not used for budgets, or after the time allowed."""
        if self._drawing is None:
            self._drawing = Breaker("budget", self._settings)
            self._tasks.append(asyncio.create_task(self._keep_probing(self._drawing, self._probe_drawing)))
        if not self._drawing.is_closed:
            return None
        found = await self._draws.fetch([draw], min(seconds, self._timeout_seconds))
        return found[0] if found else None

    def give_back(self, draw: Draw) -> None:
        """Gives back, in the background, what it took."""
        self._draws.ask([replace(draw, turns=-draw.turns)])

    async def _draw(self, draws: Sequence[Draw]) -> Sequence[Drawn] | None:
        if self._drawing is None or not self._drawing.is_closed:
            return None
        return await self._attempt(self._drawing, self._store.draw(draws))

    async def _read(self, keys: Sequence[str]) -> Entries | None:
        if not self._reading.is_closed:
            return None
        return await self._attempt(self._reading, self._store.read(keys))

    async def _write(self, entries: Mapping[str, PendingWrite]) -> None:
        if self._writing.is_closed:
            await self._attempt(self._writing, self._write_all(entries))
        else:
            metrics.CACHE_DROPPED_WRITES.labels("open").inc(len(entries))

    async def _write_all(self, entries: Mapping[str, PendingWrite]) -> None:
        """Raises the first refusal, after counting the others."""
        refusals = await self._store.write(entries)
        for error in refusals[1:]:
            metrics.CACHE_ERRORS.labels(self._writing.operation, cause_of(error)).inc()
        if refusals:
            raise refusals[0]

    async def _attempt(self, breaker: Breaker, work: Awaitable[_Result]) -> _Result | None:
        """One bounded round trip; None where it fails, which is counted by cause."""
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                result = await work
        except Exception as error:
            cause = cause_of(error)
            metrics.CACHE_ERRORS.labels(breaker.operation, cause).inc()
            breaker.record(has_failed=True, cause=cause)
            return None
        finally:
            metrics.CACHE_SECONDS.labels(breaker.operation).observe(time.monotonic() - started_at)
        breaker.record(has_failed=False)
        return result

    async def _keep_probing(self, breaker: Breaker, probe: Callable[[], Awaitable[None]]) -> None:
        while True:
            await breaker.opened.wait()
            await asyncio.sleep(breaker.pause_seconds())
            breaker.begin_probe()
            try:
                await probe()
            except Exception as error:
                cause = cause_of(error)
                metrics.CACHE_ERRORS.labels(f"probe_{breaker.operation}", cause).inc()
                breaker.end_probe(has_failed=True, cause=cause)
            else:
                breaker.end_probe(has_failed=False)

    async def _probe_reading(self) -> None:
        """Opens as many connections as lookups use, so that none has to wait for one; then it must answer in time."""
        async with asyncio.timeout(_CONNECT_SECONDS):
            await self._store.drop_idle()  # those to a server that is gone, or is no longer the master
            reads = [self._store.read(_PROBE_KEYS) for _ in range(self._settings.connections)]
            for each in await asyncio.gather(*reads, return_exceptions=True):
                if isinstance(each, BaseException):
                    raise each
        async with asyncio.timeout(self._timeout_seconds):
            await self._store.read(_PROBE_KEYS)
            await self._read_marks()  # what was cleared meanwhile must not be found

    async def _probe_writing(self) -> None:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await self._store.drop_idle()
            for refusal in await self._store.write({PROBE_KEY: PendingWrite(b"", ttl_ms=1000)}):
                raise refusal

    async def _probe_drawing(self) -> None:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await self._store.draw([_PROBE_DRAW] * 2)  # once to connect
        async with asyncio.timeout(self._timeout_seconds):
            await self._store.draw([_PROBE_DRAW])

    async def _keep_reading_marks(self) -> None:
        while True:
            await asyncio.sleep(self._settings.clear_poll_seconds)
            if self._reading.is_closed:
                await self._attempt(self._reading, self._read_marks())

    async def _read_marks(self) -> Literal[True]:
        if self._models:
            marks = await self._store.read([mark_key(model) for model in self._models])
            for model, mark in zip(self._models, marks, strict=True):
                self._on_mark(model, mark or b"")
        return True
