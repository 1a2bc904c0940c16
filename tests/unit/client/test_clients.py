"""Every client over the mock: calls, replies, errors, retries inside one deadline."""

import math

import pytest
from turnscore_client import (
    ConnectionFailedError,
    DeadlineExceededError,
    ErrorCode,
    ErrorReply,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
    ScoreReply,
    UnexpectedReplyError,
)
from turnscore_client._errors import ERROR_CLASSES
from turnscore_client.testing import MockTurnScore
from turnscore_wire import ERROR_TABLE

HI = [("user", "hi")]


def test_a_turn_is_scored(ask, mock):
    mock.scores = {"engagement": 0.83, "fed": 2.5}
    reply = ask(mock, "score", context=HI, response="hello")
    assert isinstance(reply, ScoreReply)
    assert {name: score.value for name, score in reply.scores.items()} == {"engagement": 0.83, "fed": 2.5}
    assert (mock.requests[0].method, mock.requests[0].path) == ("POST", "/v1/score")


def test_a_batch_answers_each_item_in_order_or_with_its_own_error(ask, mock):
    def scores(request):
        if request.response == "bad":
            raise OverloadedError("full", retry_after_ms=5)
        return {"engagement": len(request.response) / 10}

    mock.scores = scores
    reply = ask(mock, "score_batch", [{"response": text} for text in ("a", "bad", "abc")])
    first, second, third = reply.results
    assert isinstance(second, ErrorReply)
    assert second.error.code is ErrorCode.OVERLOADED
    assert [first.scores["engagement"].value, third.scores["engagement"].value] == [0.1, 0.3]
    assert len(mock.requests) == 1


def test_a_dialogue_is_scored(ask, mock):
    mock.scores = lambda request: {"engagement": len(request.context) / 10}
    turns = [("user", "hi"), ("system", "hello"), ("user", "and?"), ("system", "well")]
    reply = ask(mock, "score_dialogue", turns)
    assert [turn.index for turn in reply.turns] == [1, 3]
    assert reply.dialogue["engagement"].mean == pytest.approx(0.2)


def test_candidates_are_ranked(ask, mock):
    mock.scores = lambda request: {"engagement": len(request.response) / 10, "fed": 0.5 / len(request.response)}
    candidates = ["a", "abc", "ab", "abc"]
    reply = ask(mock, "rank", candidates, context=HI, weights={"fed": 0})
    assert [(each.index, each.combined) for each in reply.candidates] == [(1, 30), (3, 30), (2, 20), (0, 10)]
    reply = ask(mock, "rank", iter(candidates), weights={"engagement": 0, "fed": 2})
    assert [each.index for each in reply.candidates] == [0, 2, 1, 3]
    assert mock.requests[0].body["context"] == [{"speaker": "user", "text": "hi"}]


def test_models_are_listed(ask, mock):
    reply = ask(mock, "models", request_id="r-7")
    assert [model.scorer for model in reply.models] == ["engagement"]
    assert reply.limits.max_items == 256
    assert reply.request_id == "r-7"


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "field"),
    [
        ("score", (), {"response": ""}, "response"),
        ("score", (), {"context": [("bot", "hi")], "response": "a"}, "context.0.speaker"),
        ("score_batch", ([{"response": 7}],), {}, "items.0.response"),
        ("score_dialogue", ([("user", 7)],), {}, "turns.0.text"),
        ("rank", (["a", ""],), {}, "candidates.1"),
        ("rank", ("abc",), {}, "candidates"),
        ("rank", (["a"],), {"weights": {"fed": -1.0}}, "weights.fed"),
        ("models", (), {"request_id": "two words"}, "request_id"),
    ],
)
def test_a_wrong_request_is_refused_without_a_network_call(ask, mock, method, args, kwargs, field):
    with pytest.raises(InvalidRequestError) as raised:
        ask(mock, method, *args, **kwargs)
    assert raised.value.field == field
    assert mock.requests == []


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_is_raised_as_its_class_with_its_request_id(ask, mock, code):
    mock.fail_next(code, "because", field="response")
    with pytest.raises(ERROR_CLASSES[code]) as raised:
        ask(mock, "score", response="a", request_id="r-3", client={"max_retries": 0})
    assert (raised.value.message, raised.value.field, raised.value.request_id) == ("because", "response", "r-3")


@pytest.mark.parametrize("code", list(ErrorCode))
def test_retryable_codes_are_retried_and_no_others(ask, mock, code):
    mock.fail_next(code)
    if ERROR_TABLE[code].is_retryable:
        ask(mock, "score", response="a")
        assert len(mock.requests) == 2
    else:
        with pytest.raises(ERROR_CLASSES[code]):
            ask(mock, "score", response="a")
        assert len(mock.requests) == 1
        assert mock.clock.sleeps == []


def test_a_refused_connection_is_retried(ask, mock):
    mock.break_next(times=2)
    ask(mock, "score", response="a")
    assert len(mock.requests) == 3


def test_retries_end_with_the_last_error(ask, mock):
    mock.fail_next("overloaded", times=2)
    mock.fail_next("not_ready", times=5)
    with pytest.raises(NotReadyError):
        ask(mock, "score", response="a", client={"max_retries": 3})
    assert len(mock.requests) == 4
    assert len(mock.clock.sleeps) == 3


def test_delays_grow_and_carry_jitter(ask, mock):
    mock.break_next(times=4)
    ask(mock, "score", response="a")
    bounds = [(0.05, 0.1), (0.1, 0.2), (0.2, 0.4), (0.4, 0.8)]
    assert all(low <= slept <= high for slept, (low, high) in zip(mock.clock.sleeps, bounds, strict=True))


def test_two_callers_do_not_sleep_alike():
    sleeps = []
    for _ in range(2):
        mock = MockTurnScore()
        mock.break_next(times=4)
        with mock.client() as client:
            client.score(response="a")
        sleeps.append(mock.clock.sleeps)
    assert sleeps[0] != sleeps[1]


def test_retry_after_is_honoured(ask, mock):
    mock.fail_next("overloaded", retry_after_ms=700)
    ask(mock, "score", response="a")
    assert 0.7 <= mock.clock.sleeps[0] <= 0.77


def test_a_retry_after_header_alone_is_honoured(ask, mock):
    body = b'{"error": {"code": "not_ready", "message": "loading"}, "request_id": "r-1"}'
    mock.answer_next(503, body, {"Retry-After": "3"})
    ask(mock, "score", response="a")
    assert 3.0 <= mock.clock.sleeps[0] <= 3.3


def test_a_retry_after_beyond_the_deadline_is_raised_at_once(ask, mock):
    mock.fail_next("overloaded", retry_after_ms=60_000)
    with pytest.raises(OverloadedError) as raised:
        ask(mock, "score", response="a")
    assert raised.value.retry_after_ms == 60_000
    assert mock.clock.sleeps == []


def test_retries_stay_inside_the_overall_deadline(ask, mock):
    mock.fail_next("overloaded", retry_after_ms=300, times=50)
    with pytest.raises(OverloadedError):
        ask(mock, "score", response="a", timeout_seconds=1.0, client={"max_retries": 50})
    assert len(mock.requests) == 4
    assert mock.clock.seconds < 1.0


def test_each_attempt_tells_the_service_the_time_left(ask, mock):
    mock.fail_next("overloaded", retry_after_ms=1000, times=2)
    ask(mock, "score", response="a", client={"timeout_seconds": 5.0})
    told = [request.body["deadline_ms"] for request in mock.requests]
    slept = [0.0, *mock.clock.sleeps]
    assert told == [math.floor(1000 * (5.0 - sum(slept[: n + 1]))) for n in range(3)]


def test_a_smaller_deadline_of_the_caller_is_told_instead_and_shrinks_too(ask, mock):
    mock.fail_next("not_ready", retry_after_ms=100)
    ask(mock, "score", response="a", deadline_ms=500)
    first, second = (request.body["deadline_ms"] for request in mock.requests)
    assert first == pytest.approx(500, abs=1)
    assert second == pytest.approx(500 - 1000 * mock.clock.sleeps[0], abs=1)


def test_a_calls_timeout_goes_before_the_clients(ask, mock):
    ask(mock, "score", response="a", timeout_seconds=2.0)
    assert mock.requests[0].body["deadline_ms"] == 2000


def test_a_call_without_time_left_is_not_sent(ask, mock):
    with pytest.raises(DeadlineExceededError) as raised:
        ask(mock, "score", response="a", timeout_seconds=0, request_id="r-1")
    assert raised.value.request_id == "r-1"
    assert mock.requests == []


def test_a_calls_timeout_must_be_finite(ask, mock):
    with pytest.raises(ValueError, match="finite"):
        ask(mock, "score", response="a", timeout_seconds=math.nan)


@pytest.mark.parametrize(("status", "page"), [(500, b"<html>Oops</html>"), (200, b"<html>Hello</html>")])
def test_an_answer_that_is_not_turnscores_is_an_unexpected_reply_and_is_not_retried(ask, mock, status, page):
    mock.answer_next(status, page)
    with pytest.raises(UnexpectedReplyError):
        ask(mock, "score", response="a")
    assert len(mock.requests) == 1


def test_a_proxys_page_is_told(ask_http, mock):
    mock.answer_next(502, b"<html>Bad Gateway</html>", {"Content-Type": "text/html"})
    with pytest.raises(UnexpectedReplyError) as raised:
        ask_http(mock, "score", response="a")
    assert (raised.value.status, raised.value.body_start) == (502, "<html>Bad Gateway</html>")
    assert len(mock.requests) == 1


def test_a_redirect_is_not_followed_with_the_key(ask_http, mock):
    mock.answer_next(302, b"", {"Location": "http://elsewhere.test/"})
    with pytest.raises(UnexpectedReplyError):
        ask_http(mock, "score", response="a", client={"api_key": "s3cret"})
    assert len(mock.requests) == 1


def test_key_request_id_and_metadata_travel_beside_the_request(ask, mock):
    given = {"traceparent": "00-ab-cd-01", "X-Tenant": "blue & green"}
    ask(mock, "score", response="a", request_id="r-1", metadata=given, client={"api_key": "s3cret"})
    headers = mock.requests[0].headers
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["x-request-id"] == "r-1"
    assert (headers["traceparent"], headers["x-tenant"]) == ("00-ab-cd-01", "blue & green")


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"authorization": "Bearer other"}, "metadata"),
        ({"X-Request-Id": "r-1"}, "metadata"),
        ({"grpc-timeout": "1S"}, "metadata"),
        ({"picture-bin": "a"}, "metadata"),
        ({"two words": "a"}, "metadata"),
        ({"": "a"}, "metadata"),
        ({7: "a"}, "metadata"),
        ({"name": "line\n"}, "metadata.name"),
        ({"Name": "grün"}, "metadata.name"),
        ({"name": " a"}, "metadata.name"),
        ({"name": 7}, "metadata.name"),
    ],
)
def test_metadata_that_not_every_door_can_carry_is_refused(ask, mock, metadata, field):
    with pytest.raises(InvalidRequestError) as raised:
        ask(mock, "models", metadata=metadata)
    assert raised.value.field == field
    assert mock.requests == []


def test_what_is_sent_over_http_names_its_type_and_its_sender(ask_http, mock):
    ask_http(mock, "score", response="a")
    headers = mock.requests[0].headers
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("turnscore-client/")


def test_the_connection_error_names_the_service(ask, mock):
    mock.break_next(times=9)
    with pytest.raises(ConnectionFailedError, match=r"turnscore\.test"):
        ask(mock, "score", response="a")


SCORING_CALLS = [
    ("score", (), {"response": "a"}),
    ("score_batch", ([{"response": "a"}],), {}),
    ("score_dialogue", ([("system", "a")],), {}),
    ("rank", (["a"],), {}),
]


@pytest.mark.parametrize(("method", "arguments", "fields"), SCORING_CALLS)
def test_every_scoring_call_sends_all_that_is_given(ask, mock, method, arguments, fields):
    given = {"cache": "refresh", "cache_namespace": "mine", "scorers": ["engagement"], "options": {"engagement": {}}}
    ask(mock, method, *arguments, **fields, **given, metadata={"a": "b"}, request_id="r-1")
    body = mock.requests[-1].body
    told = body["items"][0] if method == "score_batch" else body
    assert given.items() <= told.items()
    assert (mock.requests[-1].headers["x-request-id"], mock.requests[-1].headers["a"]) == ("r-1", "b")


@pytest.mark.parametrize(
    ("method", "arguments", "fields"), [*SCORING_CALLS, ("models", (), {}), ("conversation", (), {})]
)
def test_an_option_that_there_is_not_is_refused_by_its_name(ask, mock, method, arguments, fields):
    with pytest.raises(TypeError, match=r"'scorer'; there are .*request_id"):
        ask(mock, method, *arguments, **fields, scorer="engagement")
    assert mock.requests == []


def test_asking_for_models_has_no_use_for_scorers(ask, mock):
    with pytest.raises(TypeError, match="'scorers'"):
        ask(mock, "models", scorers=["engagement"])
