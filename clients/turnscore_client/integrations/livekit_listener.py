"""LiveKit Agents: scores the agent's turns in a session, as its conversation's items come."""

from collections import deque
from typing import Any, Unpack

from turnscore_client import _defaults
from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds

_ROLES = ("user", "assistant")


def listen(session: Any, *, session_id: str | None = None, **given: Unpack[BackgroundOptions]) -> BackgroundScorer:
    """Listens to an `AgentSession` until it closes; returns the scorer.

    A turn that the user interrupted is context and is not scored: the rest was not heard.
    """
    background = BackgroundScorer(**given)
    dialogue: deque[dict[str, str]] = deque(maxlen=_defaults.BACKGROUND_MESSAGES)

    def on_item(event: Any) -> None:
        item = event.item
        text = getattr(item, "text_content", None)
        if getattr(item, "type", None) != "message" or item.role not in _ROLES or not text:
            return
        dialogue.append({"role": item.role, "content": text})
        if item.role == "assistant" and not item.interrupted:
            background.submit(dialogue, TurnIds(span_id=item.id, session_id=session_id))

    session.on("conversation_item_added", on_item)
    return background
