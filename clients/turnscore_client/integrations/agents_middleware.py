"""Microsoft Agents SDK: a middleware that scores what the bot sends and may gate it."""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from typing import Any, Unpack

from turnscore_wire import Score

from turnscore_client import _defaults
from turnscore_client._background import GateOptions, TurnIds
from turnscore_client.integrations._gate import Hook

AnswerAgain = Callable[[Any, Score], Awaitable[str | None]]  # from the turn's context and the low score to other words

_MOST_CONVERSATIONS = 4096  # chosen; the one that was silent longest is forgotten
_MESSAGE = "message"


class TurnScoreMiddleware:
    """`adapter.use(TurnScoreMiddleware())`. It remembers each conversation's last messages, in memory.

    With `min_quality` and `answer_again` a message that scores low is sent in other words.
    """

    def __init__(self, *, answer_again: AnswerAgain | None = None, **given: Unpack[GateOptions]) -> None:
        self.hook = Hook(given)
        self._answer_again = answer_again
        if (answer_again is None) != (self.hook.gate is None):
            raise ValueError("min_quality and answer_again need each other")
        self._dialogues: OrderedDict[str, deque[dict[str, str]]] = OrderedDict()

    async def on_turn(self, context: Any, logic: Callable[[Any], Awaitable[Any]]) -> None:
        """One turn of a conversation: what the user said, then what the bot sends."""
        activity = context.activity
        session = getattr(getattr(activity, "conversation", None), "id", None) or ""
        dialogue = self._dialogue(session)
        if activity.type == _MESSAGE and activity.text:
            dialogue.append({"role": "user", "content": activity.text})

        async def on_send(sending: Any, activities: list[Any], send: Callable[[], Awaitable[Any]]) -> Any:
            for each in activities:
                if each.type == _MESSAGE and each.text:
                    await self._gate(sending, dialogue, each)
            sent = await send()
            for each, kept in zip_longest(activities, sent or ()):
                if each is not None and each.type == _MESSAGE and each.text:
                    dialogue.append({"role": "assistant", "content": each.text})
                    ids = TurnIds(span_id=getattr(kept, "id", None), session_id=session or None)
                    self.hook.background.submit(dialogue, ids)
            return sent

        context.on_send_activities(on_send)
        await logic(context)

    async def _gate(self, context: Any, dialogue: deque[dict[str, str]], activity: Any) -> None:
        gate, answer_again = self.hook.gate, self._answer_again
        if gate is not None and answer_again is not None:
            activity.text = await gate.achoose(dialogue, activity.text, lambda score: answer_again(context, score), str)

    def _dialogue(self, session: str) -> deque[dict[str, str]]:
        dialogue = self._dialogues.setdefault(session, deque(maxlen=_defaults.BACKGROUND_MESSAGES))
        self._dialogues.move_to_end(session)
        if len(self._dialogues) > _MOST_CONVERSATIONS:
            self._dialogues.popitem(last=False)
        return dialogue
