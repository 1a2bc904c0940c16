"""A conversation whose opening is interrupted leaves no connection behind: no `with` has begun that would close it."""

import asyncio
from typing import Any

import pytest
from turnscore_client.testing import MockTurnScore


class InterruptedLine:
    """Answers nothing: the wait for it is ended from outside."""

    is_closed = False

    async def send(self, message: Any, seconds_left: Any) -> None:
        pass

    async def receive(self, seconds_left: Any) -> Any:
        raise asyncio.CancelledError

    async def close(self) -> None:
        self.is_closed = True


async def test_a_task_that_is_cancelled_while_it_opens_leaves_no_connection_behind(mock: MockTurnScore):
    line = InterruptedLine()

    async def open_stream(request_id: Any, attempts: Any) -> Any:
        return line

    async with mock.async_client() as client:
        conversation = client.conversation()
        conversation._open_stream = open_stream
        with pytest.raises(asyncio.CancelledError):
            async with conversation:
                pytest.fail("it opened")
    assert line.is_closed
