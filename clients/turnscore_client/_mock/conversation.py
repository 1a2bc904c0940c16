"""The mock's conversations: what a service would answer to each message. Pure but for their memory."""

from collections.abc import Callable

from turnscore_wire import (
    ConversationDraining,
    ConversationHeard,
    ConversationMessage,
    ConversationOpened,
    ConversationOpening,
    ConversationReply,
    ConversationScored,
    ConversationTurn,
    DialogueTurnScores,
    ScoreRequest,
    Turn,
)

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
        self._has_told_draining = False
        self._opening = ConversationOpening()
        self._turns: list[Turn] = []
        self._scored: list[DialogueTurnScores] = []

    def answer(self, message: ConversationMessage) -> list[ConversationReply]:
        """The answer, and `draining` before it once. Raises the error of a refused opening."""
        planned = self._next_error(message)
        notice = []
        if self._is_draining() and not self._has_told_draining:
            self._has_told_draining = True
            notice = [ConversationReply(draining=ConversationDraining(ends_in_ms=1000))]
        if message.open is not None:
            if planned is not None:
                raise planned
            return [*notice, self._open(message.open)]
        assert message.turn is not None  # exactly one field is set, by the type
        return [*notice, self._say(message.turn, planned)]

    def _open(self, opening: ConversationOpening) -> ConversationReply:
        self._opening = opening
        self._turns = list(opening.context)
        answers = self._answers()
        scorers = opening.scorers or [model.scorer for model in answers.models().models]
        opened = ConversationOpened(request_id=answers.request_id, scorers=scorers, turns=len(self._turns))
        return ConversationReply(opened=opened)

    def _say(self, turn: ConversationTurn, planned: ServiceError | None) -> ConversationReply:
        if turn.speaker == "system" and not turn.text.strip():
            planned = InvalidRequestError("a system turn must not be empty", "turn.text")
        if isinstance(planned, _NOT_TAKEN):
            return ConversationReply(error=planned.detail())
        index, context = len(self._turns), list(self._turns)
        self._turns.append(turn)
        if turn.speaker == "user":
            return ConversationReply(heard=ConversationHeard(index=index))
        try:
            if planned is not None:
                raise planned
            one = ScoreRequest(context=context, response=turn.text, scorers=self._opening.scorers)
            scored = DialogueTurnScores(index=index, scores=self._answers().score(one).scores)
        except ServiceError as error:
            scored = DialogueTurnScores(index=index, scores={}, errors={"mock": error.detail()})
        self._scored.append(scored)
        fields = scored.model_dump() | {"dialogue": aggregate(self._scored), "timing_ms": NO_TIME}
        return ConversationReply(scored=ConversationScored.model_validate(fields))
