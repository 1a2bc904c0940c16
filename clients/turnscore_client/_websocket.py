"""Conversations over a WebSocket, as JSON text (extra `websocket`)."""

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import ValidationError
from turnscore_wire import ConversationMessage, ConversationReply

from turnscore_client import _defaults
from turnscore_client._errors import ConnectionFailedError, TurnScoreError, UnexpectedReplyError, needs_extra
from turnscore_client._http import HttpAnswer, read_error, unexpected_text
from turnscore_client._retry import Attempts, OutOfTimeError

with needs_extra("websocket", "conversation() over a WebSocket"):
    import websockets.asyncio.client
    from websockets.exceptions import (
        ConnectionClosed,
        InvalidHandshake,
        InvalidMessage,
        InvalidStatus,
        WebSocketException,
    )

T = TypeVar("T")
_LOOK_SECONDS = 0.5  # how often a caller who waits looks whether the conversation's thread still runs

_LOGGER = logging.getLogger("turnscore_client.websocket")
_LOGGER.setLevel(logging.INFO)  # in detail the library writes headers, with the key, and frames, with the dialogue


class AsyncWebSocketStream:
    """From the running event loop."""

    def __init__(self, socket: "websockets.asyncio.client.ClientConnection", url: str) -> None:
        self._socket = socket
        self._url = url

    @classmethod
    async def open(
        cls, url: str, context: ssl.SSLContext | None, headers: Mapping[str, str], attempts: Attempts
    ) -> "AsyncWebSocketStream":
        """Connects. Raises OutOfTimeError, or the error that the handshake was refused with."""
        left, own = attempts.check_time(), dict(headers)
        try:
            socket = await _StayingConnect(
                uri="ws" + url.removeprefix("http") + "/v1/conversations",
                ssl=context,
                user_agent_header=own.pop("User-Agent"),
                additional_headers=own,
                open_timeout=left,
                close_timeout=_defaults.GOODBYE_SECONDS,
                logger=_LOGGER,
                compression=None,  # a message is a turn: its compression costs both sides 45 KB for nothing
            )
            return cls(socket, url)
        except (OSError, WebSocketException, UnicodeError) as error:
            raise _refusal(error, url) from error

    async def send(self, message: ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Sends one message. On a connection that has ended it waits for nothing: `receive` reports why it ended."""
        try:
            async with asyncio.timeout(seconds_left()):
                await self._socket.send(_encode(message))
        except TimeoutError:
            raise OutOfTimeError from None
        except ConnectionClosed:
            return
        except OSError as error:
            raise _broken(error, self._url) from error

    async def receive(self, seconds_left: Callable[[], float]) -> ConversationReply:
        try:
            async with asyncio.timeout(seconds_left()):
                return _decode(await self._socket.recv())
        except TimeoutError:
            raise OutOfTimeError from None
        except (ConnectionClosed, OSError) as error:
            raise _broken(error, self._url) from error

    async def close(self) -> None:
        """Says goodbye, and waits a little for the service's."""
        await self._socket.close()


class WebSocketStream:
    """From the calling thread: a thread of its own has the event loop, so that one thread alone uses the connection."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turnscore-conversation", daemon=True)
        self._thread.start()
        self._stream: AsyncWebSocketStream | None = None

    @classmethod
    async def open(
        cls, url: str, context: ssl.SSLContext | None, headers: Mapping[str, str], attempts: Attempts
    ) -> "WebSocketStream":
        """Connects. Raises OutOfTimeError, or the error that the handshake was refused with."""
        opened = cls()
        try:
            opened._stream = opened._run(AsyncWebSocketStream.open(url, context, headers, attempts))
        except BaseException:
            await opened.close()
            raise
        return opened

    async def send(self, message: ConversationMessage, seconds_left: Callable[[], float]) -> None:
        """Sends one message. On a connection that has ended it waits for nothing: `receive` reports why it ended."""
        assert self._stream is not None
        self._run(self._stream.send(message, seconds_left))

    async def receive(self, seconds_left: Callable[[], float]) -> ConversationReply:
        assert self._stream is not None
        return self._run(self._stream.receive(seconds_left))

    async def close(self) -> None:
        """Says goodbye, and waits a little for the service's; in a forked process it leaves the connection alone."""
        if not self._thread.is_alive():
            return
        try:
            if self._stream is not None:
                self._run(self._stream.close())
        finally:
            self._run(_end_tasks())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while self._thread.is_alive():  # it is not in a forked process, and where another loop holds the thread
                with suppress(TimeoutError):
                    return running.result(_LOOK_SECONDS)
                if running.done():
                    return running.result()
            work.close()
            raise ConnectionFailedError("the conversation's thread has ended: a conversation stays in its process")
        except BaseException:
            running.cancel()  # of a caller that is interrupted
            raise


async def _end_tasks() -> None:
    """Of an opening that was interrupted; a connection that is closed has none."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class _StayingConnect(websockets.asyncio.client.connect):
    """Follows no redirect, so that the API key goes nowhere else."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _refusal(error: Exception, url: str) -> TurnScoreError | OutOfTimeError:
    """Every way in which no connection comes about, in this package's words."""
    if isinstance(error, InvalidStatus):
        response = error.response
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
        return read_error(HttpAnswer(response.status_code, headers, bytes(response.body or b"")))
    if isinstance(error, TimeoutError):
        return OutOfTimeError()
    if isinstance(error, InvalidMessage) and isinstance(error.__cause__, OSError | EOFError):
        return _broken(error.__cause__, url)  # it ended first, as where a caller's certificate is refused (TLS 1.3)
    if isinstance(error, InvalidHandshake):
        return UnexpectedReplyError(f"{url} does not answer as a WebSocket: {error}")
    return _broken(error, url)


def _broken(error: Exception, url: str) -> ConnectionFailedError:
    return ConnectionFailedError(f"no conversation with {url}: {error or type(error).__name__}")


def _encode(message: ConversationMessage) -> str:
    return message.model_dump_json(exclude_unset=True)


def _decode(text: str | bytes) -> ConversationReply:
    try:
        return ConversationReply.model_validate_json(text)
    except ValidationError:
        raise unexpected_text(text) from None
