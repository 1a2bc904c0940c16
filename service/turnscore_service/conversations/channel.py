"""The channel of a live conversation: what a door gives, and what the session takes from it and hands to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from turnscore_wire import ConversationMessage, ConversationReply


@dataclass(frozen=True, slots=True)
class Received:
    """One message of the caller as it came."""

    size_bytes: int
    read: Callable[[], ConversationMessage]
    """Decodes it, which takes time: its size comes first. Raises the error that says why it is no message."""


class Channel(Protocol):
    """A door's side of a conversation. Both methods raise CallerLeftError once the connection is gone."""

    async def receive(self) -> Received | None:
        """The next message; None when the caller has said everything and still listens."""

    async def send(self, reply: ConversationReply) -> None:
        """Hands one message to the caller; returns when there is room for another."""
