"""Every client over the mock: calls, replies, errors, and what travels beside a request."""

import pytest
from turnscore_client import InvalidRequestError, UnexpectedReplyError


@pytest.mark.parametrize(("status", "page"), [(500, b"<html>Oops</html>"), (200, b"<html>Hello</html>")])
def test_an_answer_that_is_not_turnscores_is_an_unexpected_reply_and_is_not_retried(ask, mock, status, page):
    mock.answer_next(status, page)
    with pytest.raises(UnexpectedReplyError):
        ask(mock, "score", response="a")
    assert len(mock.requests) == 1


def test_a_redirect_is_not_followed_with_the_key(ask_http, mock):
    mock.answer_next(302, b"", {"Location": "http://elsewhere.test/"})
    with pytest.raises(UnexpectedReplyError):
        ask_http(mock, "score", response="a", client={"api_key": "s3cret"})
    assert len(mock.requests) == 1


def test_key_request_id_and_metadata_travel_with_the_request(ask, mock):
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
        ({"picture-bin": "a"}, "metadata"),
        ({"two words": "a"}, "metadata"),
        ({"name": "line\n"}, "metadata.name"),
        ({"Name": "grün"}, "metadata.name"),
    ],
)
def test_metadata_that_not_every_transport_can_carry_is_refused(ask, mock, metadata, field):
    with pytest.raises(InvalidRequestError) as raised:
        ask(mock, "models", metadata=metadata)
    assert raised.value.field == field
    assert mock.requests == []


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
