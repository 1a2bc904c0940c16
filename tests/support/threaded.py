"""A conversation of a client for threads, driven from an event loop."""

import asyncio
from typing import Any

from turnscore_client import TurnScoreClient, TurnScoreGrpcClient


class Threaded:
    """Says its turns in a thread, so that the transport's event loop goes on."""

    def __init__(self, client: TurnScoreClient | TurnScoreGrpcClient, given: dict[str, Any]) -> None:
        self._client = client
        self._conversation = client.conversation(**given)

    async def __aenter__(self) -> "Threaded":
        await asyncio.to_thread(self._conversation.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._conversation.close)
        self._client.close()

    async def say(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._conversation.say, *args, **kwargs)

    async def say_messages(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._conversation.say_messages, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conversation, name)
