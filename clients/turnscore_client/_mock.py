"""A mock's answers and conversations, without a network."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import turnscore_wire as wire
from pydantic import BaseModel
from turnscore_wire.conversations import Transcript
from turnscore_wire.messages import count_skipped, is_blank
from turnscore_wire.requests import NO_RESPONSE

from turnscore_client._calls import ENDPOINTS
from turnscore_client._errors import ERROR_CLASSES, InvalidRequestError, NotFoundError, ServiceError, TooLargeError
from turnscore_client._retry import OutOfTimeError

Scores = Mapping[str, float] | Callable[[wire.ScoreRequest], Mapping[str, float]]

Similarity = Callable[[str, str], float]  # how near two texts are
Signals = Mapping[str, Sequence[str]]  # what user turns show, by scorer of user turns

_BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}

NO_TIME = wire.Timing(total=0.0, tokenize=0.0, queue=0.0, inference=0.0)


@dataclass(frozen=True)
class MockAnswers:
    """Answers requests with the values that `scores` holds, or returns, under one request id."""

    scores: Scores
    limits: wire.Limits
    request_id: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    similarity: Similarity | None = None
    signals: Signals = field(default_factory=dict)
    is_draining: bool = False

    def answer(self, path: str, body: bytes) -> BaseModel:
        """The reply to one request. Raises ValidationError or a ServiceError where the service would refuse it."""
        endpoint = _BY_PATH.get(path)
        if endpoint is None:
            raise NotFoundError("there is no such path")
        match None if endpoint.request_type is None else endpoint.request_type.model_validate_json(body):
            case wire.ScoreRequest() as request:
                return self.score(request)
            case wire.BatchRequest(items=items):
                return wire.BatchReply(request_id=self.request_id, results=[self.result(item) for item in items])
            case wire.DialogueRequest() as request:
                return self._score_dialogue(request)
            case wire.RankRequest() as request:
                return self._rank(request)
            case wire.SimilarityRequest() as request:
                return self._compare(request)
            case None:
                return self.models()

    def result(self, item: wire.ScoreRequest) -> wire.ScoreReply | wire.ErrorReply:
        try:
            return self.score(item)
        except ServiceError as error:
            return wire.ErrorReply(error=error.detail(), request_id=self.request_id)

    def score(self, request: wire.ScoreRequest) -> wire.ScoreReply:
        """The scores of one turn; raises what `scores` raises."""
        values = self.scores(request) if callable(self.scores) else self.scores
        asked = self._of_system(values) if request.scorers is None else request.scorers
        if request.speaker == "user" and not request.is_speaker_given and self._of_system(asked):
            raise InvalidRequestError(NO_RESPONSE, "messages")
        for place, name in enumerate(asked):
            field = "scorers" if request.scorers is None else f"scorers.{place}"
            if name not in values:
                raise InvalidRequestError("no such scorer is loaded", field)
            if (own := self.speaker_of(name)) != request.speaker:
                message = f"{name} scores turns of the {own}, but this is one of the {request.speaker}"
                raise InvalidRequestError(message, field)
        scores = {
            name: _score_of(name, values[name], request.response, self.thresholds.get(name), self.signals.get(name))
            for name in asked
        }
        found = request.place()
        return wire.ScoreReply(
            request_id=self.request_id,
            scores=scores,
            timing_ms=NO_TIME,
            index=found.get("index"),
            skipped=found.get("skipped", 0),
        )

    def speaker_of(self, name: str) -> wire.Speaker:
        """Whose turns that scorer scores."""
        return "user" if name in self.signals else "system"

    def asked_of(self, turn: wire.Turn, scorers: list[str] | None) -> list[str] | None:
        """Those of the scorers asked that score the turn; None for the default ones, which score the system's."""
        if scorers is None and turn.speaker == "system":
            return None
        return [name for name in scorers or () if self.speaker_of(name) == turn.speaker and not is_blank(turn.text)]

    def _of_system(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.speaker_of(name) == "system"]

    def _score_dialogue(self, request: wire.DialogueRequest) -> wire.DialogueReply:
        turns, mapped = [], request.mapped
        for index, turn in enumerate(request.turns):
            asked = self.asked_of(turn, request.scorers)
            if turn.speaker == "system" and is_blank(turn.text):
                raise InvalidRequestError("a system turn must not be empty", f"turns.{index}.text")
            if asked is None or asked:
                context = request.turns[:index]
                one = wire.ScoreRequest(context=context, response=turn.text, speaker=turn.speaker, scorers=asked)
                place = mapped.indices[index] if request.messages else index
                turns.append(wire.DialogueTurnScores(index=place, scores=self.score(one).scores))
        names = request.scorers or ()
        missing = [self.speaker_of(name) for name in names if all(name not in each.scores for each in turns)]
        if missing or not turns:
            message = f"there is no {[*missing, 'system'][0]} turn to score"
            raise InvalidRequestError(message, "messages" if request.messages else "turns")
        return wire.DialogueReply(
            request_id=self.request_id,
            turns=turns,
            dialogue=aggregate(turns),
            timing_ms=NO_TIME,
            skipped=mapped.skipped,
        )

    def _rank(self, request: wire.RankRequest) -> wire.RankReply:
        """As the service ranks; a candidate whose scores are an error comes last, and all failing raises the first."""
        scorers = self._ranked_by(request)
        asked = [
            wire.ScoreRequest(context=request.context, response=text, scorers=scorers) for text in request.candidates
        ]
        results = list(map(self.result, asked))
        scored = [each.scores for each in results if isinstance(each, wire.ScoreReply)]
        failed = [each.error for each in results if isinstance(each, wire.ErrorReply)]
        wrong = [error for error in failed if error.code == wire.ErrorCode.INVALID_REQUEST or not scored]
        if wrong:
            raise ERROR_CLASSES[wrong[0].code](wrong[0].message, wrong[0].field, wrong[0].retry_after_ms)
        weights = _weights(request, list(scored[0]))
        scores = [each.scores if isinstance(each, wire.ScoreReply) else {} for each in results]
        errors = [dict.fromkeys(weights, each.error) if isinstance(each, wire.ErrorReply) else {} for each in results]
        return wire.RankReply(
            request_id=self.request_id,
            candidates=wire.order_candidates(scores, errors, weights),
            weights=weights,
            timing_ms=NO_TIME,
            skipped=count_skipped(request.messages),
        )

    def _ranked_by(self, request: wire.RankRequest) -> list[str] | None:
        """Those that the request names, by `scorers` or else by `weights`, else quality where it is known."""
        if request.scorers is not None or callable(self.scores):
            return request.scorers
        known = [name for name in request.weights or () if name in self.scores]
        return known or (["quality"] if "quality" in self.scores else None)

    def _compare(self, request: wire.SimilarityRequest) -> wire.SimilarityReply:
        """As the service compares, by the mock's own similarity."""
        others, compare = request.references or request.texts, self.similarity or share_words
        if len(request.texts) + len(others) > self.limits.max_items:
            field = "references" if len(request.texts) < len(others) else "texts"
            raise TooLargeError(f"together at most {self.limits.max_items} are allowed", field)
        texts = []
        for place, text in enumerate(request.texts):
            found = [compare(text, other) for other in others]
            rivals = [each for each in range(len(others)) if request.references or each != place]
            best = max(rivals, key=found.__getitem__, default=None)
            texts.append(wire.TextSimilarities(similarities=found, best=best, tokens=_tokens_of(text), cached=False))
        return wire.SimilarityReply(
            request_id=self.request_id,
            texts=texts,
            references=[wire.EncodedText(tokens=_tokens_of(text), cached=False) for text in request.references],
            model="encoder:0.0.0",
            digest="0" * 64,
            timing_ms=NO_TIME,
        )

    def models(self) -> wire.ModelsReply:
        names = [*(self.thresholds or ["engagement"]), *self.signals] if callable(self.scores) else list(self.scores)
        models = [
            wire.ModelDescription(
                scorer=name,
                model=f"{name}:0.0.0",
                digest="0" * 64,
                graph="mock",
                max_text_tokens=512,
                max_turn_tokens=512,
                threshold=self.thresholds.get(name),
                is_default=self.speaker_of(name) == "system",
                speaker=self.speaker_of(name),
            )
            for name in names
        ]
        return wire.ModelsReply(request_id=self.request_id, models=models, limits=self.limits)


def share_words(left: str, right: str) -> float:
    """The share of words that both texts have, of all that they have; 1 for equal texts."""
    own, other = set(left.lower().split()), set(right.lower().split())
    return len(own & other) / max(1, len(own | other))


def _tokens_of(text: str) -> wire.TokenCount:
    return wire.TokenCount(used=len(text.split()), dropped=0)


def _weights(request: wire.RankRequest, names: list[str]) -> dict[str, float]:
    given = request.weights or {}
    for name in given:
        if name not in names:
            raise InvalidRequestError("this scorer is not among those asked", f"weights.{name}")
    weights = {name: given.get(name, 1.0) for name in names}
    if not any(weights.values()):
        raise InvalidRequestError("at least one scorer must weigh more than 0", "weights")
    return weights


def _score_of(
    name: str, value: float, response: str, threshold: float | None, signals: Sequence[str] | None
) -> wire.Score:
    return wire.Score(
        value=value,
        percentile=100 * min(max(value, 0.0), 1.0),
        details=dict.fromkeys(signals or (), 1.0),
        signals=list(signals or ()),
        model=f"{name}:0.0.0",
        tokens=_tokens_of(response),
        cached=False,
        label=None if threshold is None else "low" if value < threshold else "fair",
    )


def aggregate(turns: list[wire.DialogueTurnScores]) -> dict[str, wire.DialogueAggregate]:
    """Each scorer's view of the turns."""
    names = sorted({name for turn in turns for name in turn.scores})
    return {
        name: wire.DialogueAggregate.of([turn.scores[name] for turn in turns if name in turn.scores]) for name in names
    }


# Records a message; the error that the test planned for it. Raises where it planned that no service answers.
NextError = Callable[[wire.ConversationMessage], ServiceError | None]

_NOT_TAKEN = (InvalidRequestError, TooLargeError)


class MockConversation:
    """Answers each message as the service would: one answer each, in order."""

    def __init__(self, answers: Callable[[], MockAnswers], next_error: NextError) -> None:
        self._answers = answers
        self._next_error = next_error
        self._has_announced_draining = False
        self._opening = wire.ConversationOpening()
        self._transcript = Transcript([], 0)
        self._scored: list[wire.DialogueTurnScores] = []

    def answer(self, message: wire.ConversationMessage) -> list[wire.ConversationReply]:
        """The answer, and `draining` before it once. Raises the error of a refused opening."""
        planned = self._next_error(message)
        notice = []
        if self._answers().is_draining and not self._has_announced_draining:
            self._has_announced_draining = True
            notice = [wire.ConversationReply(draining=wire.ConversationDraining(ends_in_ms=1000))]
        if message.open is not None:
            if planned is not None:
                raise planned
            return [*notice, self._open(message.open)]
        return [*notice, self._take(message.turn, message.messages, planned)]

    def _open(self, opening: wire.ConversationOpening) -> wire.ConversationReply:
        self._opening = opening
        self._transcript = Transcript(list(opening.context), len(opening.messages or opening.context))
        answers = self._answers()
        scorers = opening.scorers or [model.scorer for model in answers.models().models if model.is_default]
        opened = wire.ConversationOpened(request_id=answers.request_id, scorers=scorers, turns=self._transcript.taken)
        return wire.ConversationReply(opened=opened)

    def _take(
        self, turn: wire.ConversationTurn | None, sent: wire.ConversationMessages | None, planned: ServiceError | None
    ) -> wire.ConversationReply:
        """Of what was said: a turn, or messages."""
        if turn is not None and turn.speaker == "system" and is_blank(turn.text):
            planned = InvalidRequestError("a system turn must not be empty", "turn.text")
        if sent is not None and wire.map_messages(sent.messages).ends_silent:
            planned = InvalidRequestError("the assistant's last message has no text to score", "messages.messages")
        if isinstance(planned, _NOT_TAKEN):
            return wire.ConversationReply(error=planned.detail())
        if turn is not None:
            return self._hear(self._transcript.add_turn(turn), turn, planned)
        assert sent is not None  # exactly one field of a message is set, by the type
        return self._hear(*self._transcript.add_messages(sent.messages), planned, count_skipped(sent.messages))

    def _hear(
        self, index: int, turn: wire.Turn | None, planned: ServiceError | None, skipped: int = 0
    ) -> wire.ConversationReply:
        answers, context = self._answers(), self._transcript.turns[:-1]
        asked = [] if turn is None else answers.asked_of(turn, self._opening.scorers)
        if turn is None or asked == []:
            last = self._transcript.taken + len(self._transcript.waiting) - 1
            return wire.ConversationReply(ack=wire.ConversationAck(index=last, skipped=skipped))
        try:
            if planned is not None:
                raise planned
            one = wire.ScoreRequest(context=context, response=turn.text, speaker=turn.speaker, scorers=asked)
            scored = wire.DialogueTurnScores(index=index, scores=answers.score(one).scores)
        except ServiceError as error:
            scored = wire.DialogueTurnScores(index=index, scores={}, errors={"mock": error.detail()})
        self._scored.append(scored)
        fields = scored.model_dump() | {"dialogue": aggregate(self._scored), "timing_ms": NO_TIME, "skipped": skipped}
        kind = "scored" if turn.speaker == "system" else "user_turn"
        return wire.ConversationReply.model_validate({kind: fields})


class MockStream:
    """A line to a conversation of the mock."""

    def __init__(self, conversation: MockConversation) -> None:
        self._conversation = conversation
        self._replies: deque[wire.ConversationReply] = deque()

    async def send(self, message: wire.ConversationMessage, seconds_left: Callable[[], float]) -> None:
        self._replies.extend(self._conversation.answer(message))

    async def receive(self, seconds_left: Callable[[], float]) -> wire.ConversationReply:
        """The next answer; without one the time is over at once."""
        if not self._replies:
            raise OutOfTimeError
        return self._replies.popleft()

    async def close(self) -> None:
        self._replies.clear()
