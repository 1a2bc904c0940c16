"""For the tests of turnscore's users: a service that answers in this process, and a clock that never waits."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError
from turnscore_wire import (
    ERROR_TABLE,
    BatchReply,
    BatchRequest,
    DialogueAggregate,
    DialogueReply,
    DialogueRequest,
    DialogueTurnScores,
    ErrorCode,
    ErrorReply,
    Limits,
    ModelDescription,
    ModelsReply,
    Score,
    ScoreReply,
    ScoreRequest,
    Timing,
    TokenCount,
)

from turnscore_client import _defaults
from turnscore_client._async_client import AsyncTurnScoreClient
from turnscore_client._calls import invalid_request
from turnscore_client._client import TurnScoreClient
from turnscore_client._errors import ERROR_CLASSES, InvalidRequestError, NotFoundError, ServiceError

__all__ = ["ManualClock", "MockTurnScore", "RecordedRequest"]

Scores = Mapping[str, float] | Callable[[ScoreRequest], Mapping[str, float]]

_TIMING = Timing(total=0.0, tokenize=0.0, queue=0.0, inference=0.0)


class ManualClock:
    """A clock on which time passes by being slept through, at once. `sleeps` are the seconds of each sleep."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sleeps: list[float] = []

    def now(self) -> float:
        """Seconds slept through, and whatever was added to `seconds`."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Moves the clock on and returns."""
        self.sleeps.append(seconds)
        self.seconds += seconds

    async def sleep_async(self, seconds: float) -> None:
        """Moves the clock on and returns."""
        self.sleep(seconds)


@dataclass(frozen=True)
class RecordedRequest:
    """One request as it reached the mock. Header names are in lower case; `body` is the decoded JSON."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class MockTurnScore:
    """A turnscore without a network or a model: it checks requests as the service does and answers with your scores.

    `scores` are the values by scorer, or a function of the request that returns them; it may raise a ServiceError,
    which in a batch becomes that item's result. `requests` are all that came, in order.
    """

    def __init__(self, scores: Scores | None = None) -> None:
        self.scores: Scores = {"engagement": 0.5} if scores is None else scores
        self.limits = Limits()
        self.requests: list[RecordedRequest] = []
        self.clock = ManualClock()
        self.transport = httpx.MockTransport(self._handle)
        self._planned: deque[Callable[[httpx.Request], httpx.Response]] = deque()

    def client(
        self,
        *,
        api_key: str | None = None,
        timeout_seconds: float = _defaults.TIMEOUT_SECONDS,
        max_retries: int = _defaults.MAX_RETRIES,
    ) -> TurnScoreClient:
        """A client of this mock. Its retries sleep on the mock's clock, which does not wait."""
        return TurnScoreClient(
            "http://turnscore.test",
            api_key=api_key,
            timeout_seconds=timeout_seconds,
            max_retries=max_retries,
            transport=self.transport,
            clock=self.clock,
        )

    def async_client(
        self,
        *,
        api_key: str | None = None,
        timeout_seconds: float = _defaults.TIMEOUT_SECONDS,
        max_retries: int = _defaults.MAX_RETRIES,
    ) -> AsyncTurnScoreClient:
        """The same for asyncio."""
        return AsyncTurnScoreClient(
            "http://turnscore.test",
            api_key=api_key,
            timeout_seconds=timeout_seconds,
            max_retries=max_retries,
            transport=self.transport,
            clock=self.clock,
        )

    def fail_next(
        self,
        code: ErrorCode | str,
        message: str = "planned by the test",
        *,
        field: str | None = None,
        retry_after_ms: int | None = None,
        times: int = 1,
    ) -> None:
        """The next requests, that many, are refused with this code."""
        error = ERROR_CLASSES[ErrorCode(code)](message, field, retry_after_ms)
        self._planned.extend([lambda _request: self._refuse(error)] * times)

    def break_next(self, times: int = 1) -> None:
        """The next requests, that many, find no service: the connection is refused."""

        def refuse(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("connection refused, planned by the test", request=request)

        self._planned.extend([refuse] * times)

    def answer_next(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, *, times: int = 1
    ) -> None:
        """The next requests, that many, get this answer, such as a proxy's page."""
        self._planned.extend([lambda _request: httpx.Response(status, content=body, headers=headers)] * times)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        body = request.content
        self.requests.append(
            RecordedRequest(
                request.method,
                request.url.path,
                {name.lower(): value for name, value in request.headers.items()},
                httpx.Response(200, content=body).json() if body else None,
            )
        )
        if self._planned:
            return self._planned.popleft()(request)
        try:
            return httpx.Response(200, content=self._reply(request.url.path, body).model_dump_json())
        except ValidationError as error:
            return self._refuse(invalid_request(error))
        except ServiceError as error:
            return self._refuse(error)

    def _reply(self, path: str, body: bytes) -> BaseModel:
        if path == "/v1/score":
            return self._score(ScoreRequest.model_validate_json(body))
        if path == "/v1/score_batch":
            items = BatchRequest.model_validate_json(body).items
            return BatchReply(request_id=self._request_id(), results=[self._result(item) for item in items])
        if path == "/v1/score_dialogue":
            return self._score_dialogue(DialogueRequest.model_validate_json(body))
        if path == "/v1/models":
            return self._models()
        raise NotFoundError("nothing lives at this path")

    def _result(self, item: ScoreRequest) -> ScoreReply | ErrorReply:
        try:
            return self._score(item)
        except ServiceError as error:
            return ErrorReply(error=error.detail(), request_id=self._request_id())

    def _score(self, request: ScoreRequest) -> ScoreReply:
        values = self.scores(request) if callable(self.scores) else self.scores
        asked = list(values) if request.scorers is None else request.scorers
        for place, name in enumerate(asked):
            if name not in values:
                raise InvalidRequestError("no such scorer is loaded", f"scorers.{place}")
        scores = {name: _score_of(name, values[name], request.response) for name in asked}
        return ScoreReply(request_id=self._request_id(), scores=scores, timing_ms=_TIMING)

    def _score_dialogue(self, request: DialogueRequest) -> DialogueReply:
        turns = []
        for index, turn in enumerate(request.turns):
            if turn.speaker == "system":
                if not turn.text.strip():
                    raise InvalidRequestError("a system turn must not be empty", f"turns.{index}.text")
                one = ScoreRequest(context=request.turns[:index], response=turn.text, scorers=request.scorers)
                turns.append(DialogueTurnScores(index=index, scores=self._score(one).scores))
        if not turns:
            raise InvalidRequestError("there is no system turn to score", "turns")
        return DialogueReply(request_id=self._request_id(), turns=turns, dialogue=_aggregate(turns), timing_ms=_TIMING)

    def _models(self) -> ModelsReply:
        names = ["engagement"] if callable(self.scores) else list(self.scores)
        models = [
            ModelDescription(scorer=name, model=f"{name}:0.0.0", digest="0" * 64, graph="mock", token_limit=512)
            for name in names
        ]
        return ModelsReply(request_id=self._request_id(), models=models, limits=self.limits)

    def _refuse(self, error: ServiceError) -> httpx.Response:
        headers = {}
        if error.retry_after_ms is not None:
            headers["Retry-After"] = str(-(-error.retry_after_ms // 1000))  # whole seconds, rounded up
        reply = ErrorReply(error=error.detail(), request_id=self._request_id())
        return httpx.Response(ERROR_TABLE[error.code].http_status, content=reply.model_dump_json(), headers=headers)

    def _request_id(self) -> str:
        return self.requests[-1].headers.get("x-request-id", f"mock-{len(self.requests)}")


def _score_of(name: str, value: float, response: str) -> Score:
    return Score(
        value=value,
        percentile=100 * min(max(value, 0.0), 1.0),
        details={},
        model=f"{name}:0.0.0",
        tokens=TokenCount(used=len(response.split()), dropped=0),
        cached=False,
    )


def _aggregate(turns: list[DialogueTurnScores]) -> dict[str, DialogueAggregate]:
    aggregates = {}
    for name in sorted({name for turn in turns for name in turn.scores}):
        values = [turn.scores[name].value for turn in turns if name in turn.scores]
        aggregates[name] = DialogueAggregate(mean=fmean(values), min=min(values), max=max(values), turns=len(values))
    return aggregates
