"""Microsoft Agents SDK: a middleware that scores what the bot sends and may gate it."""

from collections.abc import Awaitable, Callable
from itertools import zip_longest
from typing import Any, Unpack

from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds
from turnscore_client.integrations._gate import QualityGate, new_dialogues

_MESSAGE = "message"


class TurnScoreMiddleware:
    """`adapter.use(TurnScoreMiddleware())`. It remembers each conversation's last messages, in memory.

    With a gate, what is sent passes it; the SDK knows no model, so that `fallback_model` must be a function.
    """

    def __init__(self, *, gate: QualityGate | None = None, **given: Unpack[BackgroundOptions]) -> None:
        if gate is not None:
            gate.check("the Microsoft Agents SDK", can_ask=False)
        self.gate, self.background = gate, BackgroundScorer(**given)
        self._dialogues = new_dialogues()

    async def on_turn(self, context: Any, logic: Callable[[Any], Awaitable[Any]]) -> None:
        """One turn of a conversation: what the user said, then what the bot sends."""
        activity = context.activity
        session = getattr(getattr(activity, "conversation", None), "id", None) or ""
        dialogue = self._dialogues.of(session)
        if activity.type == _MESSAGE and activity.text:
            dialogue.append({"role": "user", "content": activity.text})

        async def on_send(_: Any, activities: list[Any], send: Callable[[], Awaitable[Any]]) -> Any:
            for each in activities:
                if self.gate is not None and each.type == _MESSAGE and each.text:
                    each.text = await self.gate.achoose(dialogue, each.text, conversation=session)
            sent = await send()
            for each, kept in zip_longest(activities, sent or ()):
                if each is not None and each.type == _MESSAGE and each.text:
                    dialogue.append({"role": "assistant", "content": each.text})
                    ids = TurnIds(span_id=getattr(kept, "id", None), session_id=session or None)
                    self.background.submit(dialogue, ids)
            return sent

        context.on_send_activities(on_send)
        await logic(context)
