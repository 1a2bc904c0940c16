"""What was spoken: a chatbot's turns and the turns before them, from the messages that frameworks keep.

Mapped here and not by the service, so that prompts and results of tools stay with the chatbot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from turnscore_wire import Turn
from turnscore_wire.messages import ChatMessage, map_messages

from turnscore_client._calls import invalid_request


@dataclass(frozen=True)
class SpokenTurn:
    """A turn of the chatbot and what was said before it."""

    context: list[Turn]
    response: str


def spoken_turns(messages: Iterable[Mapping[str, Any]]) -> list[Turn]:
    """The turns, oldest first; none where the chatbot has not finished the last one. Raises InvalidRequestError."""
    try:
        mapped = map_messages([ChatMessage.model_validate(message) for message in messages])
    except ValidationError as error:
        raise invalid_request(error) from None
    return [] if mapped.goes_on or mapped.ends_silent else mapped.turns


def last_turn(messages: Iterable[Mapping[str, Any]]) -> SpokenTurn | None:
    """The last turn, where it is the chatbot's and has words; else None. Raises InvalidRequestError."""
    turns = spoken_turns(messages)
    if not turns or turns[-1].speaker != "system":
        return None
    return SpokenTurn(turns[:-1], turns[-1].text)
