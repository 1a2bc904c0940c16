"""The messages of a live conversation, alike over HTTP and gRPC, and the transcript that both ends keep.

The caller's first message is `open`; without one the conversation begins with the defaults. Every message of the
caller is answered by exactly one, in order: `open` by `opened`, a system turn by `scored`, a user's turn by
`user_turn`, one that no scorer is asked of by `ack`, `messages` by one of these three, and any that is not taken by
`error`; the conversation then goes on as if it had not been sent. `draining` comes at any time and answers nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import FailFast, Field, model_validator
from pydantic_core import PydanticCustomError

from turnscore_wire.errors import ErrorDetail
from turnscore_wire.messages import MAX_DEADLINE_MS, ChatMessage, Turn, WireRequest, map_messages
from turnscore_wire.replies import SKIPPED, DialogueAggregate, Errors, Reply, Score, Timing
from turnscore_wire.requests import Messages, TakesContext


@dataclass(slots=True)
class Transcript:
    """The turns so far. Messages of an assistant's turn that tools are at work for wait for the rest of it."""

    turns: list[Turn]
    # Turns and messages that these turns came in: the place of the next one.
    taken: int
    waiting: list[ChatMessage] = field(default_factory=list)

    def add_turn(self, turn: Turn) -> int:
        """Adds a turn; its place. What waits becomes turns as it is."""
        self.turns.extend(map_messages(self.waiting).turns)
        self.turns.append(turn)
        self.taken += len(self.waiting) + 1
        self.waiting = []
        return self.taken - 1

    def add_messages(self, messages: Sequence[ChatMessage]) -> tuple[int, Turn | None]:
        """Adds messages. The turn that they end with and the place of its last text.

        While the assistant's turn goes on: None and the last place, as where they hold no turn.
        """
        together, first = [*self.waiting, *messages], self.taken
        mapped = map_messages(together)
        turns, cut = mapped.turns, len(together)
        if mapped.goes_on:
            finished = len(turns) - (bool(turns) and turns[-1].speaker == "system")
            turns, cut = turns[:finished], mapped.indices[finished - 1] + 1 if finished else 0
        self.turns.extend(turns)
        self.taken += cut
        self.waiting = together[cut:]
        if self.waiting or not turns:
            return first + len(together) - 1, None
        return first + mapped.indices[-1], turns[-1]


class ConversationOpening(TakesContext):
    """What holds for the whole conversation; `deadline_ms` for each of its turns, from the turn's arrival."""

    context: Annotated[list[Turn], FailFast()] = Field(
        default_factory=list,
        description="The turns before this conversation, oldest first; may be empty. They are not scored.",
    )


class ConversationTurn(Turn):
    """What was just said. It is scored in the context of all turns before it. A system turn must not be empty."""

    deadline_ms: Annotated[int, Field(ge=1, le=MAX_DEADLINE_MS)] | None = Field(
        default=None, description="Milliseconds to score this turn in, instead of the opening's."
    )


class ConversationMessages(WireRequest):
    """What was said since the last time, in OpenAI's chat form. The turn that it ends with is scored.

    While tools are at work the service waits for the rest of the assistant's turn in the next ones.
    """

    messages: Messages = Field(description="The messages since the last ones, oldest first.")
    deadline_ms: Annotated[int, Field(ge=1, le=MAX_DEADLINE_MS)] | None = Field(
        default=None, description="Milliseconds to score the last turn in, instead of the opening's."
    )


class ConversationMessage(WireRequest):
    """One message of the caller: exactly one of its fields."""

    open: ConversationOpening | None = None
    turn: ConversationTurn | None = None
    messages: ConversationMessages | None = None

    @model_validator(mode="after")
    def _holds_one(self) -> "ConversationMessage":
        if sum(getattr(self, name) is not None for name in type(self).model_fields) != 1:
            raise PydanticCustomError("not_one_field", "must hold exactly one of open, turn and messages")
        return self


class ConversationOpened(Reply):
    """The conversation is open."""

    request_id: str
    scorers: list[str] = Field(description="The scorers asked: every turn is scored with those of its speaker's turns.")
    turns: int = Field(description="Turns, or messages, of context taken; the first one said has this index.")


class ConversationAck(Reply):
    """A turn that no scorer is asked of is part of the context; `index` is its place, the opening's context included.

    Of messages it is the last one's place.
    """

    index: int
    skipped: int = SKIPPED


class ConversationScored(Reply):
    """One turn's scores, and each scorer's view of the conversation so far.

    The turn is part of the context whether or not it could be scored.
    """

    index: int = Field(
        description="Its place in the dialogue, the opening's context included, from 0; of messages the place of the "
        "one that holds its last text."
    )
    scores: dict[str, Score]
    errors: Errors = Field(default_factory=dict)
    dialogue: dict[str, DialogueAggregate] = Field(
        description="Each scorer's mean, least and greatest value over the turns that this conversation scored."
    )
    timing_ms: Timing
    skipped: int = SKIPPED


class ConversationDraining(Reply):
    """The service is shutting down: finish what is being said, then continue over another connection."""

    ends_in_ms: int = Field(description="Milliseconds until the service ends the conversation.")


class ConversationReply(Reply):
    """One message of the service: one of its fields. A caller ignores a message that holds none it knows."""

    opened: ConversationOpened | None = None
    ack: ConversationAck | None = None
    scored: ConversationScored | None = Field(default=None, description="A system turn's scores.")
    user_turn: ConversationScored | None = Field(
        default=None, description="A user turn's scores, where scorers of user turns are asked."
    )
    error: ErrorDetail | None = Field(default=None, description="Why the service refused the message that it answers.")
    draining: ConversationDraining | None = None
