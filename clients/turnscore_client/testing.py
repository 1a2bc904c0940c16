"""For the tests of turnscore's users: a service that answers in this process, and a clock that never waits."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import httpx
from pydantic import ValidationError
from turnscore_wire import ERROR_TABLE, ConversationMessage, ErrorCode, ErrorReply, Limits

from turnscore_client import _mock
from turnscore_client._async import AsyncTurnScoreClient, AsyncTurnScoreGrpcClient
from turnscore_client._calls import invalid_request
from turnscore_client._errors import ERROR_CLASSES, ConnectionFailedError, ServiceError
from turnscore_client._http import HttpAnswer, read_error
from turnscore_client._options import ClientOptions
from turnscore_client._sync import TurnScoreClient, TurnScoreGrpcClient

__all__ = ["ClientOptions", "ManualClock", "MockTurnScore", "RecordedRequest"]

_URL = "http://turnscore.test"
_GRPC_ADDRESS = "turnscore.test:50051"


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


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """One request as it reached the mock. Header names are in lower case; `body` is the decoded JSON.

    Each message of a conversation is one, of the method `CONVERSATION`.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class _MockTransport(httpx.MockTransport):
    """Carries calls to the mock, and conversations, for which the clients ask it by this name."""

    def __init__(
        self,
        handle: Callable[[httpx.Request], httpx.Response],
        open_conversation: Callable[[Mapping[str, str]], _mock.MockConversation],
    ) -> None:
        super().__init__(handle)
        self._open_conversation = open_conversation

    def open_stream(self, headers: Mapping[str, str]) -> _mock.MockStream:
        return _mock.MockStream(self._open_conversation(headers))


class MockTurnScore:
    """A turnscore without a network or a model: it checks requests as the service does and answers with your scores.

    `scores` are the values by scorer, or a function of the request that returns them; it may raise a ServiceError,
    which in a batch becomes that item's result. `thresholds` are the values, by scorer, below which a score's label is
    `low`; without one it has none. `signals` makes scorers those of user turns: by name, the signals that their scores
    show. `similarity` says how near two texts are; without one, what share of their words both have. `requests` are all
    that came, in order.
    """

    def __init__(
        self,
        scores: _mock.Scores | None = None,
        thresholds: Mapping[str, float] | None = None,
        similarity: _mock.Similarity | None = None,
        signals: _mock.Signals | None = None,
    ) -> None:
        self.similarity = similarity
        self.signals = dict(signals or {})
        self.scores: _mock.Scores = {"engagement": 0.5} if scores is None else scores
        self.thresholds = dict(thresholds or {})
        self.limits = Limits()
        self.requests: list[RecordedRequest] = []
        self.clock = ManualClock()
        self.is_draining = False
        self.transport = _MockTransport(self._handle, self._open_conversation)
        self._planned: deque[Callable[[httpx.Request], httpx.Response]] = deque()

    def client(self, **given: Unpack[ClientOptions]) -> TurnScoreClient:
        """A client of this mock. Its retries sleep on the mock's clock, which does not wait."""
        return TurnScoreClient(_URL, transport=self.transport, **self._own(given))

    def async_client(self, **given: Unpack[ClientOptions]) -> AsyncTurnScoreClient:
        """The same for asyncio."""
        return AsyncTurnScoreClient(_URL, transport=self.transport, **self._own(given))

    def grpc_client(self, **given: Unpack[ClientOptions]) -> TurnScoreGrpcClient:
        """The same over gRPC (extra `grpc`). Its calls are recorded as those over HTTP, their metadata as headers."""
        from turnscore_client._mock_grpc import MockGrpcChannel

        channel: Any = MockGrpcChannel(self.transport)
        return TurnScoreGrpcClient(_GRPC_ADDRESS, channel=channel, **self._own(given))

    def async_grpc_client(self, **given: Unpack[ClientOptions]) -> AsyncTurnScoreGrpcClient:
        """The same over gRPC for asyncio."""
        from turnscore_client._mock_grpc import AsyncMockGrpcChannel

        channel: Any = AsyncMockGrpcChannel(self.transport)
        return AsyncTurnScoreGrpcClient(_GRPC_ADDRESS, channel=channel, **self._own(given))

    def _own(self, given: ClientOptions) -> ClientOptions:
        return {"clock": self.clock, **given}

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

    def begin_drain(self) -> None:
        """From now on every conversation learns, with its next answer, that the service is shutting down."""
        self.is_draining = True

    def _handle(self, request: httpx.Request) -> httpx.Response:
        body = request.content
        self.requests.append(
            RecordedRequest(
                method=request.method,
                path=request.url.path,
                headers={name.lower(): value for name, value in request.headers.items()},
                body=httpx.Response(200, content=body).json() if body else None,
            )
        )
        if self._planned:
            return self._planned.popleft()(request)
        try:
            return httpx.Response(200, content=self._answers().answer(request.url.path, body).model_dump_json())
        except ValidationError as error:
            return self._refuse(invalid_request(error))
        except ServiceError as error:
            return self._refuse(error)

    def _open_conversation(self, headers: Mapping[str, str]) -> _mock.MockConversation:
        own = {name.lower(): value for name, value in headers.items()}

        def next_error(message: ConversationMessage) -> ServiceError | None:
            body = message.model_dump(exclude_unset=True)
            self.requests.append(
                RecordedRequest(method="CONVERSATION", path="/v1/conversations", headers=own, body=body)
            )
            return self._planned_error()

        return _mock.MockConversation(self._answers, next_error)

    def _planned_error(self) -> ServiceError | None:
        if not self._planned:
            return None
        try:
            response = self._planned.popleft()(httpx.Request("GET", "http://turnscore.test/v1/conversations"))
        except httpx.ConnectError as error:
            raise ConnectionFailedError(str(error)) from None
        planned = read_error(HttpAnswer(response.status_code, dict(response.headers), response.content))
        if isinstance(planned, ServiceError):
            return planned
        raise planned

    def _answers(self) -> _mock.MockAnswers:
        known = self.thresholds, self.similarity, self.signals, self.is_draining
        return _mock.MockAnswers(self.scores, self.limits, self._request_id(), *known)

    def _refuse(self, error: ServiceError) -> httpx.Response:
        headers = {}
        if error.retry_after_ms is not None:
            headers["Retry-After"] = str(-(-error.retry_after_ms // 1000))  # whole seconds, rounded up
        reply = ErrorReply(error=error.detail(), request_id=self._request_id())
        return httpx.Response(ERROR_TABLE[error.code].http_status, content=reply.model_dump_json(), headers=headers)

    def _request_id(self) -> str:
        return self.requests[-1].headers.get("x-request-id", f"mock-{len(self.requests)}")
