"""A live conversation over a channel that a test holds, on fakes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from turnscore_core.errors import (
    CallerLeftError,
)
from turnscore_service.api.calls import decode
from turnscore_service.conversations.session import Received
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_service.settings.service import ConversationSettings, Settings
from turnscore_wire import ConversationMessage, ConversationReply

from support.fakes import FakeScorer, loaded_fake


class HeldChannel:
    """A channel whose caller is the test: it says, hears, and leaves."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[Received | CallerLeftError | None] = asyncio.Queue()
        self.replies: asyncio.Queue[ConversationReply] = asyncio.Queue()
        self.room = asyncio.Event()
        self.room.set()
        self.read = 0

    async def receive(self) -> Received | None:
        received = await self.inbox.get()
        if isinstance(received, CallerLeftError):
            raise received
        self.read += 1
        return received

    async def send(self, reply: ConversationReply) -> None:
        await self.room.wait()
        self.replies.put_nowait(reply)

    def say(self, speaker: str, text: str, **fields: Any) -> None:
        self.tell({"turn": {"speaker": speaker, "text": text, **fields}})

    def tell(self, message: dict[str, Any]) -> None:
        read = ConversationMessage.model_validate(message)
        self.inbox.put_nowait(Received(100, lambda: read))

    def babble(self) -> None:
        """Sends what is no message."""
        self.inbox.put_nowait(Received(3, lambda: decode(ConversationMessage, b"oh!")))

    async def hear(self) -> ConversationReply:
        return await asyncio.wait_for(self.replies.get(), 60)


@asynccontextmanager
async def serving(
    settings: Settings | None = None, beside: CandidateVersions | None = None, **scorers: Any
) -> AsyncIterator[Runtime]:
    loaded = {name: loaded_fake(scorer, name) for name, scorer in scorers.items()}
    versions = beside or CandidateVersions()
    runtime = Runtime(settings or Settings(), load=lambda _: loaded, load_candidate=lambda *_: versions)
    runtime.start()
    await runtime.wait_until_loaded()
    yield runtime
    await runtime.stop()


@asynccontextmanager
async def talking(
    settings: Settings | None = None, beside: CandidateVersions | None = None, **scorers: Any
) -> AsyncIterator[tuple[HeldChannel, "asyncio.Task[None]", Runtime]]:
    async with serving(settings, beside, **(scorers or {"fake": FakeScorer()})) as runtime:
        channel = HeldChannel()
        holding = asyncio.create_task(runtime.conversations.hold(runtime.pipeline, channel, "r-1"))
        yield channel, holding, runtime
        if not holding.done():
            channel.inbox.put_nowait(None)
            await asyncio.wait_for(holding, 60)


def bounded(**bounds: Any) -> Settings:
    return Settings(conversations=ConversationSettings(**bounds))
