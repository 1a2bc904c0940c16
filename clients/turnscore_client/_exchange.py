"""The turns of a conversation, the answers that are due, and how it continues with another replica."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import turnscore_wire as wire
from turnscore_wire.conversations import Transcript

from turnscore_client._calls import messages_message, turn_message
from turnscore_client._errors import UnexpectedReplyError, error_from_detail
from turnscore_client._options import MessageLike

Dialogue = Mapping[str, wire.DialogueAggregate]


def opening_with(opening: wire.ConversationOpening, turns: Sequence[wire.Turn]) -> wire.ConversationOpening:
    """The same choices with the turns so far. Raises as ConversationOpening does where that is too much."""
    kept = {name: getattr(opening, name) for name in opening.model_fields_set - {"context", "messages"}}
    return wire.ConversationOpening(**kept, context=list(turns))


def has_ended(reply: wire.ConversationReply) -> bool:
    """Whether this ends the conversation, as the replica shuts down or nobody spoke; the turn was then not taken."""
    return reply.error is not None and reply.error.code in ("not_ready", "deadline_exceeded")


def join(before: Dialogue, after: Dialogue) -> dict[str, wire.DialogueAggregate]:
    """The aggregates over the turns of both: a conversation's before and after it was reopened."""
    joined = {**before, **after}
    for name in before.keys() & after.keys():
        joined[name] = _join_one(before[name], after[name])
    return joined


def _join_one(one: wire.DialogueAggregate, other: wire.DialogueAggregate) -> wire.DialogueAggregate:
    turns = one.turns + other.turns

    def mean(first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else (first * one.turns + second * other.turns) / turns

    def outer(choose: Callable[..., float], first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else choose(first, second)

    return wire.DialogueAggregate(
        mean=(one.mean * one.turns + other.mean * other.turns) / turns,
        min=min(one.min, other.min),
        max=max(one.max, other.max),
        turns=turns,
        percentile_mean=mean(one.percentile_mean, other.percentile_mean),
        percentile_min=outer(min, one.percentile_min, other.percentile_min),
        percentile_max=outer(max, one.percentile_max, other.percentile_max),
    )


_Sent = wire.Turn | list[wire.ChatMessage]


class Exchange:
    """Counts one answer for each message, in order; an answer that no caller waits for any more is left out."""

    def __init__(
        self,
        opening: wire.ConversationOpening,
        request_id: str | None,
        before: Dialogue | None = None,
        shift: int = 0,
        waiting: Sequence[wire.ChatMessage] = (),
    ) -> None:
        """`before` are the aggregates of the turns that the conversation scored before it was reopened.

        `shift` is by how much its places are beyond those that the service counts: messages became fewer turns.
        `waiting` are messages of an unfinished assistant's turn, to send once the conversation is open.
        """
        self._opening = opening
        self.shift = shift
        self._before = dict(before or {})
        # The last aggregates, over every turn that was scored since the first opening.
        self.dialogue: Dialogue = self._before
        self._taken: list[_Sent] = [*opening.context]
        self._waiting = list(waiting)
        self._due: deque[_Sent | None] = deque()  # what is still to be answered; None stands for the opening
        self._late = 0  # how many of these, the first ones, no caller waits for
        self.opened: wire.ConversationOpened | None = None
        self.request_id = request_id
        self.is_draining = False

    @property
    def turns(self) -> Sequence[wire.Turn]:
        """What the service has received, and what it may have received because its answer did not come."""
        transcript = self.transcript_before(None)
        return (*transcript.turns, *wire.map_messages(transcript.waiting).turns)

    def transcript_before(self, message: wire.ConversationMessage | None) -> Transcript:
        """The same without what this message, the last one, says; messages of a turn that goes on wait."""
        transcript = Transcript([], 0)
        for entry in self._sent_before(message):
            if isinstance(entry, wire.Turn):
                transcript.add_turn(entry)
            else:
                transcript.add_messages(entry)
        return transcript

    def places_before(self, message: wire.ConversationMessage | None) -> int:
        """The place that the next turn, or message, would have, as `index` counts them."""
        sent = self._sent_before(message)[len(self._opening.context) :]
        opened = len(self._opening.messages or self._opening.context)
        return self.shift + opened + sum(1 if isinstance(entry, wire.Turn) else len(entry) for entry in sent)

    def _sent_before(self, message: wire.ConversationMessage | None) -> list[_Sent]:
        last = None if message is None else message.turn or (message.messages and message.messages.messages)
        due = (entry for entry in self._due if entry is not None)
        waiting = [self._waiting] if self._waiting else []
        return [entry for entry in (*self._taken, *waiting, *due) if entry is not last]

    @property
    def deadline_ms(self) -> int | None:
        """The deadline of turns that name none."""
        return self._opening.deadline_ms

    def open(self) -> wire.ConversationMessage:
        self._due.append(None)
        return wire.ConversationMessage(open=self._opening)

    def add_turn(self, speaker: wire.Speaker, text: str, deadline_ms: int) -> wire.ConversationMessage:
        """The message that says a turn. Raises InvalidRequestError for what the wire refuses."""
        message = turn_message(speaker, text, deadline_ms)
        self._due.append(message.turn)
        return message

    def add_messages(self, messages: Iterable[MessageLike], deadline_ms: int) -> wire.ConversationMessage:
        """The message with a chatbot's messages. Raises InvalidRequestError for what the wire refuses."""
        message = messages_message(messages, deadline_ms)
        assert message.messages is not None
        self._due.append(message.messages.messages)
        return message

    def waiting_message(self, deadline_ms: int) -> wire.ConversationMessage | None:
        """The message with what waited for the opening, if anything did."""
        waiting, self._waiting = self._waiting, []
        return self.add_messages(waiting, deadline_ms) if waiting else None

    def give_up(self) -> None:
        """No caller waits for the answers that are due."""
        self._late = len(self._due)

    def read(self, reply: wire.ConversationReply) -> wire.ConversationReply | None:
        """The reply where it is the answer that is waited for; None for any other."""
        if reply.draining is not None:
            self.is_draining = True
            return None
        scored = reply.scored or reply.user_turn
        if reply.opened is None and reply.ack is None and scored is None and reply.error is None:
            return None  # of a kind that this client does not know
        self._settle(is_taken=reply.error is None)
        if reply.opened is not None:
            self.opened, self.request_id = reply.opened, reply.opened.request_id
        if scored is not None:
            self.dialogue = join(self._before, scored.dialogue) if self._before else scored.dialogue
            own = {"index": scored.index + self.shift, "dialogue": dict(self.dialogue)}
            kind = "user_turn" if reply.scored is None else "scored"
            reply = reply.model_copy(update={kind: scored.model_copy(update=own)})
        if self._late:
            self._late -= 1
            return None
        return reply

    def skip(self) -> None:
        """An answer came that cannot be read, and no caller waits for more: what it answers may have been received."""
        self._settle(is_taken=True)
        self.give_up()

    def _settle(self, *, is_taken: bool) -> None:
        """The first of what is due has its answer."""
        if self._due:
            sent = self._due.popleft()
            if sent is not None and is_taken:
                self._taken.append(sent)


def read_answer(reply: wire.ConversationReply, request_id: str | None) -> wire.ConversationScored | None:
    """The turn's scores, None for one that nobody scores. Raises the error of a turn that was refused or not scored."""
    if reply.error is not None:
        raise error_from_detail(reply.error, request_id)
    scored = reply.scored or reply.user_turn
    if scored is not None and not scored.scores:
        for error in scored.errors.values():
            raise error_from_detail(error, request_id)
        raise UnexpectedReplyError("a turn with neither scores nor errors", request_id=request_id)
    return scored
