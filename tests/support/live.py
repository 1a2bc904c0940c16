"""A live conversation over a WebSocket, as its caller sees it."""

import json

from turnscore_wire import ConversationReply
from websockets.sync.client import ClientConnection


def say(socket: ClientConnection, speaker: str, text: str) -> ConversationReply:
    """Says a turn and returns the service's next message."""
    socket.send(json.dumps({"turn": {"speaker": speaker, "text": text}}))
    return hear(socket)


def hear(socket: ClientConnection) -> ConversationReply:
    """The service's next message."""
    return ConversationReply.model_validate_json(socket.recv(60))
