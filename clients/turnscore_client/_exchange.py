"""The exchange of one conversation: what was said, which answers are due, which come too late. Pure; sends nothing."""

from collections import deque
from collections.abc import Sequence

from turnscore_wire import (
    ConversationMessage,
    ConversationOpened,
    ConversationOpening,
    ConversationReply,
    ConversationScored,
    Speaker,
    Turn,
)

from turnscore_client._calls import turn_message
from turnscore_client._errors import ServiceError, UnexpectedReplyError, error_from_detail


class Exchange:
    """Counts one answer for each message, in order; an answer nobody waits for any more is left out."""

    def __init__(self, opening: ConversationOpening, request_id: str | None) -> None:
        self._opening = opening
        self._taken = list(opening.context)
        self._due: deque[Turn | None] = deque()
        """What is still to be answered; None stands for the opening."""
        self._late = 0
        """How many of these, the first ones, nobody waits for."""
        self.opened: ConversationOpened | None = None
        self.request_id = request_id
        self.is_draining = False

    @property
    def turns(self) -> Sequence[Turn]:
        """What the service has heard, and what it may have heard because its answer did not come."""
        return (*self._taken, *(turn for turn in self._due if turn is not None))

    @property
    def deadline_ms(self) -> int | None:
        """The deadline of turns that name none."""
        return self._opening.deadline_ms

    def open(self) -> ConversationMessage:
        """The message that opens the conversation."""
        self._due.append(None)
        return ConversationMessage(open=self._opening)

    def say(self, speaker: Speaker, text: str, deadline_ms: int) -> ConversationMessage:
        """The message that says a turn. Raises InvalidRequestError for what the wire refuses."""
        message = turn_message(speaker, text, deadline_ms if speaker == "system" else None)
        self._due.append(message.turn)
        return message

    def give_up(self) -> None:
        """Nobody waits for the answers that are due."""
        self._late = len(self._due)

    def read(self, reply: ConversationReply) -> ConversationReply | None:
        """The reply where it is the answer that is waited for; None for any other."""
        if reply.draining is not None:
            self.is_draining = True
            return None
        if reply.opened is None and reply.heard is None and reply.scored is None and reply.error is None:
            return None  # of a kind that this client does not know
        if self._due:
            turn = self._due.popleft()
            if turn is not None and reply.error is None:
                self._taken.append(turn)
        if reply.opened is not None:
            self.opened, self.request_id = reply.opened, reply.opened.request_id
        if self._late:
            self._late -= 1
            return None
        return reply


def read_answer(reply: ConversationReply, request_id: str | None) -> ConversationScored | None:
    """The scores of a system turn, None for a user's. Raises the error of a turn that was refused or not scored."""
    if reply.error is not None:
        raise error_from_detail(reply.error, request_id)
    if reply.scored is not None and not reply.scored.scores:
        raise _first_error(reply.scored, request_id)
    return reply.scored


def _first_error(scored: ConversationScored, request_id: str | None) -> ServiceError | UnexpectedReplyError:
    for error in scored.errors.values():
        return error_from_detail(error, request_id)
    return UnexpectedReplyError("a turn with neither scores nor errors", request_id=request_id)
