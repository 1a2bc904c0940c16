"""Pipecat: scores what the bot said, as its assistant aggregator ends each turn."""

from typing import Any, Unpack

from turnscore_client._background import BackgroundOptions, BackgroundScorer, TurnIds


def listen(
    assistant_aggregator: Any, *, session_id: str | None = None, **given: Unpack[BackgroundOptions]
) -> BackgroundScorer:
    """Listens to the assistant's side of an `LLMContextAggregatorPair`; returns the watch.

    A turn that the user interrupted is not scored: nobody heard the rest.
    """
    watch = BackgroundScorer(**given)

    async def on_turn(aggregator: Any, message: Any) -> None:
        if not message.interrupted and message.content:
            said = [each for each in aggregator.context.messages if isinstance(each, dict)]
            if said and said[-1].get("role") == "assistant":
                said.pop()  # it may hold marks that nobody hears
            said.append({"role": "assistant", "content": message.content})
            watch.submit(said, TurnIds(session_id=session_id))

    assistant_aggregator.add_event_handler("on_assistant_turn_stopped", on_turn)
    return watch
