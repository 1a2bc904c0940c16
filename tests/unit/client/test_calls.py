"""Every client over the mock: what is sent, in which form it may be given, and what is refused."""

import json

import pytest
from turnscore_client import ChatMessage, InvalidRequestError, ScoreRequest, Turn, UnexpectedReplyError
from turnscore_client._calls import opening_of
from turnscore_client._settings import resolve_http
from turnscore_client._sync import Calls

HI = {"speaker": "user", "text": "hi"}


def sent(call, left_ms=5000):
    body = call.body(lambda own: left_ms if own is None else min(own, left_ms))
    return json.loads(body)


class Recorder:
    async def send(self, call, attempts):
        self.call = call


def made(method, *args, **given):
    """The call that a client makes of these arguments."""
    recorder = Recorder()
    getattr(Calls(recorder, resolve_http(None, {}), None), method)(*args, **given)
    return recorder.call


def score(context=(), response="hello", **given):
    return made("score", context=context, response=response, **given)


CONTEXTS = [
    [HI], [Turn(speaker="user", text="hi")], [("user", "hi")], [["user", "hi"]],
    (("user", text) for text in ["hi"]), (HI,),
]  # fmt: skip


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_context_may_be_given_in_several_forms(context):
    assert sent(score(context))["context"] == [HI]


def test_everything_given_is_sent_even_an_option_that_is_null():
    given = {"options": {"fed": {"qualities": ["fluent"], "seed": None}}, "deadline_ms": 300, "cache": "refresh"}
    given |= {"cache_namespace": "tenant-1", "conversation": "c-1"}
    call = score([HI], scorers=("engagement",), **given)
    assert sent(call) == {"context": [HI], "response": "hello", "scorers": ["engagement"], **given}


def test_the_error_of_a_wrong_field_never_holds_dialogue_text():
    with pytest.raises(InvalidRequestError) as raised:
        score([{"speaker": "my secret", "text": "my secret"}])
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_items_of_a_batch_take_the_batchs_choice_unless_they_have_their_own():
    items = [
        {"response": "one"},
        {"context": [("user", "hi")], "response": "two", "scorers": ["fed"], "deadline_ms": 9000, "options": None},
        ScoreRequest(response="three", deadline_ms=20, cache="use"),
    ]
    call = made("score_batch", iter(items), scorers=["engagement"], options=None, deadline_ms=100, cache="bypass")
    assert sent(call) == {
        "items": [
            {"context": [], "response": "one", "scorers": ["engagement"], "deadline_ms": 100, "cache": "bypass"},
            {"context": [HI], "response": "two", "scorers": ["fed"], "deadline_ms": 5000, "cache": "bypass"},
            {"context": [], "response": "three", "scorers": ["engagement"], "deadline_ms": 20, "cache": "use"},
        ]
    }


class LibraryMessage:
    """A message as openai's library has them."""

    def model_dump(self):
        return {"role": "assistant", "content": "b", "tool_calls": None, "audio": None, "refusal": None}


def test_messages_are_sent_instead_of_turns_without_what_is_not_read():
    messages = [{"role": "system", "content": "p"}, ChatMessage(role="user", content="a"), LibraryMessage()]
    read = [{"role": "system"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    alone = {"messages": read, "deadline_ms": 5000}
    assert sent(made("score", messages=messages)) == sent(made("score_dialogue", messages=messages)) == alone
    assert sent(made("score", response="c", messages=messages)) == {**alone, "response": "c"}
    assert sent(made("rank", ("c",), messages=messages)) == {**alone, "candidates": ["c"]}
    assert sent(made("score_batch", [{"messages": messages}]))["items"] == [alone]
    assert opening_of((), {}, messages).context[0].text == "a"


WRONG = [{"role": "user", "content": [{}]}]


WRONG_CALLS = [
    ("score", (), {}, "response"), ("score", (), {"response": ""}, "response"),
    ("score", (), {"response": "a\x00b"}, "response"),
    ("score", (), {"response": "a", "context": "hi"}, "context"),
    ("score", (), {"response": "a", "context": [HI, ("bot", "hi")]}, "context.1.speaker"),
    ("score", (), {"response": "a", "deadline_ms": 0}, "deadline_ms"),
    ("score", (), {"response": "a", "request_id": "two words"}, "request_id"),
    ("score", (), {"response": "a", "request_id": "a\r\nX-Evil: 1"}, "request_id"),
    ("score", (), {"messages": WRONG}, "messages.0.content.0.type"),
    ("score", (), {"context": [HI], "response": "b", "messages": [{"role": "user", "content": "a"}]}, "context"),
    ("score_batch", ([],), {}, "items"), ("score_batch", ("hi",), {}, "items"),
    ("score_batch", ([{"response": "a"}, {"context": []}],), {}, "items.1.response"),
    ("score_batch", ([{"response": "a", "context": [("bot", "hi")]}],), {}, "items.0.context.0.speaker"),
    ("score_batch", ([{"messages": WRONG}],), {}, "items.0.messages.0.content.0.type"),
    ("similarity", ("one text",), {}, "texts"), ("similarity", ([],), {}, "texts"),
    ("similarity", (["a", " "],), {}, "texts.1"), ("similarity", (["a"], ["b", 7]), {}, "references.1"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "arguments", "fields", "field"), WRONG_CALLS)
def test_what_is_wrong_is_named_before_anything_is_sent(method, arguments, fields, field):
    with pytest.raises(InvalidRequestError) as refused:
        made(method, *arguments, **fields)
    assert refused.value.field == field


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


WRONG_METADATA = [
    ({"authorization": "Bearer other"}, "metadata"),
    ({"X-Request-Id": "r-1"}, "metadata"),
    ({"picture-bin": "a"}, "metadata"),
    ({"two words": "a"}, "metadata"),
    ({"name": "line\n"}, "metadata.name"),
    ({"Name": "grün"}, "metadata.name"),
]


@pytest.mark.parametrize(("metadata", "field"), WRONG_METADATA)
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
