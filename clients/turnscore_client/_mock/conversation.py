"""The mock's conversations: what a service would answer to each message. Pure but for their memory."""

from collections.abc import Callable

from turnscore_wire import (
    ConversationAck,
    ConversationDraining,
    ConversationMessage,
    ConversationMessages,
    ConversationOpened,
    ConversationOpening,
    ConversationReply,
    ConversationScored,
    ConversationTurn,
    DialogueTurnScores,
    ScoreRequest,
    map_messages,
)
from turnscore_wire.messages import count_skipped
from turnscore_wire.transcript import Transcript

from turnscore_client._errors import InvalidRequestError, ServiceError, TooLargeError
from turnscore_client._mock.answers import NO_TIME, MockAnswers, aggregate

NextError = Callable[[ConversationMessage], ServiceError | None]
"""Records a message; the error that the test planned for it. Raises where it planned that nobody answers."""

_NOT_TAKEN = (InvalidRequestError, TooLargeError)


class MockConversation:
    """Answers each message as the service would: one answer each, in order."""

    def __init__(
        self, answers: Callable[[], MockAnswers], next_error: NextError, is_draining: Callable[[], bool]
    ) -> None:
        self._answers = answers
        self._next_error = next_error
        self._is_draining = is_draining
        self._has_announced_draining = False
        self._opening = ConversationOpening()
        self._transcript = Transcript([], 0)
        self._scored: list[DialogueTurnScores] = []

    def answer(self, message: ConversationMessage) -> list[ConversationReply]:
        """The answer, and `draining` before it once. Raises the error of a refused opening."""
        planned = self._next_error(message)
        notice = []
        if self._is_draining() and not self._has_announced_draining:
            self._has_announced_draining = True
            notice = [ConversationReply(draining=ConversationDraining(ends_in_ms=1000))]
        if message.open is not None:
            if planned is not None:
                raise planned
            return [*notice, self._open(message.open)]
        if message.messages is not None:
            return [*notice, self._hear(message.messages, planned)]
        assert message.turn is not None  # exactly one field is set, by the type
        return [*notice, self._say(message.turn, planned)]

    def _open(self, opening: ConversationOpening) -> ConversationReply:
        self._opening = opening
        self._transcript = Transcript(list(opening.context), len(opening.messages or opening.context))
        answers = self._answers()
        scorers = opening.scorers or [model.scorer for model in answers.models().models]
        opened = ConversationOpened(request_id=answers.request_id, scorers=scorers, turns=self._transcript.taken)
        return ConversationReply(opened=opened)

    def _say(self, turn: ConversationTurn, planned: ServiceError | None) -> ConversationReply:
        if turn.speaker == "system" and not turn.text.strip():
            planned = InvalidRequestError("a system turn must not be empty", "turn.text")
        if isinstance(planned, _NOT_TAKEN):
            return ConversationReply(error=planned.detail())
        index = self._transcript.say(turn)
        if turn.speaker == "user":
            return ConversationReply(ack=ConversationAck(index=index))
        return self._score(index, planned)

    def _hear(self, said: ConversationMessages, planned: ServiceError | None) -> ConversationReply:
        if map_messages(said.messages).ends_silent:
            planned = InvalidRequestError("the assistant's last message has no text to score", "messages.messages")
        if isinstance(planned, _NOT_TAKEN):
            return ConversationReply(error=planned.detail())
        index, turn = self._transcript.hear(said.messages)
        skipped = count_skipped(said.messages)
        if turn is None:
            return ConversationReply(ack=ConversationAck(index=index, skipped=skipped))
        return self._score(index, planned, skipped)

    def _score(self, index: int, planned: ServiceError | None, skipped: int = 0) -> ConversationReply:
        """The scores of the turn that was said last."""
        *context, turn = self._transcript.turns
        try:
            if planned is not None:
                raise planned
            one = ScoreRequest(context=context, response=turn.text, scorers=self._opening.scorers)
            scored = DialogueTurnScores(index=index, scores=self._answers().score(one).scores)
        except ServiceError as error:
            scored = DialogueTurnScores(index=index, scores={}, errors={"mock": error.detail()})
        self._scored.append(scored)
        fields = scored.model_dump() | {"dialogue": aggregate(self._scored), "timing_ms": NO_TIME, "skipped": skipped}
        return ConversationReply(scored=ConversationScored.model_validate(fields))
