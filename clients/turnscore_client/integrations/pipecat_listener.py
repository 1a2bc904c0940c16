"""Pipecat: scores the bot's turns, as its assistant aggregator ends each turn."""

from typing import Any, Unpack

from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds


def listen(
    assistant_aggregator: Any, *, session_id: str | None = None, **given: Unpack[BackgroundOptions]
) -> BackgroundScorer:
    """Listens to the assistant's side of an `LLMContextAggregatorPair`; returns the scorer.

    A turn that the user interrupted is not scored: the rest was not heard.
    """
    background = BackgroundScorer(**given)

    async def on_turn(aggregator: Any, message: Any) -> None:
        if not message.interrupted and message.content:
            dialogue = [each for each in aggregator.context.messages if isinstance(each, dict)]
            if dialogue and dialogue[-1].get("role") == "assistant":
                dialogue.pop()  # it may hold marks that are not spoken
            dialogue.append({"role": "assistant", "content": message.content})
            background.submit(dialogue, TurnIds(session_id=session_id))

    assistant_aggregator.add_event_handler("on_assistant_turn_stopped", on_turn)
    return background
