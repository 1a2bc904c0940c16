"""Open work: how much of something has begun and not ended, and when nothing of it is open any more."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class OpenWork:
    """A count, entered as a context manager. Belongs to one event loop."""

    def __init__(self) -> None:
        self._open = 0
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self) -> None:
        """One more is open."""
        self._open += 1

    def end(self) -> None:
        """One less is."""
        self._open -= 1
        if not self._open:
            for each in self._waiting:
                if not each.done():
                    each.set_result(None)
            self._waiting.clear()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    async def wait_until_none(self) -> None:
        """Returns when nothing is open, at once where nothing is."""
        while self._open:
            closed = asyncio.get_running_loop().create_future()
            self._waiting.append(closed)
            await closed


class TakesRequests(Protocol):
    """What answers requests, and counts those that are open."""

    requests: OpenWork


_Parameters = ParamSpec("_Parameters")
_Reply = TypeVar("_Reply")
_Self = TypeVar("_Self", bound=TakesRequests)


def counted(
    method: Callable[Concatenate[_Self, _Parameters], Awaitable[_Reply]],
) -> Callable[Concatenate[_Self, _Parameters], Coroutine[Any, Any, _Reply]]:
    """Counts a request as open from the moment at which the method is awaited."""

    @wraps(method)
    async def count(self: _Self, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Reply:
        with self.requests:
            return await method(self, *args, **kwargs)

    return count
