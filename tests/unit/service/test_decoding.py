import pytest
from turnscore_service.decoding import decode, decode_batch
from turnscore_service.errors import InvalidRequestError, TooLargeError
from turnscore_wire import DialogueRequest, Limits, ScoreRequest

WRONG_REQUESTS = [
    (b"", "body"),
    (b"no json", "body"),
    (b'{"response": "a"', "body"),
    (b"\xff\xfe", "body"),
    (b"[" * 100_000, "body"),
    (b"[]", "body"),
    (b"{}", "response"),
    (b'{"response": ""}', "response"),
    (b'{"response": " \\n"}', "response"),
    (b'{"response": 1}', "response"),
    (b'{"response": "a\\u0000"}', "response"),
    (b'{"response": "\\ud800"}', "response"),
    (b'{"response": "a", "context": [{"speaker": "bot", "text": "b"}]}', "context.0.speaker"),
    (b'{"response": "a", "context": [{"speaker": "user"}]}', "context.0.text"),
    (b'{"response": "a", "context": [{"speaker": "user", "text": "\\udfff"}]}', "context.0.text"),
    (b'{"response": "a", "context": [{"speaker": "user", "text": "b", "mood": 1}]}', "context.0.mood"),
    (b'{"response": "a", "context": "b"}', "context"),
    (b'{"response": "a", "scorers": []}', "scorers"),
    (b'{"response": "a", "scorers": "engagement"}', "scorers"),
    (b'{"response": "a", "deadline_ms": 0}', "deadline_ms"),
    (b'{"response": "a", "deadline_ms": "300"}', "deadline_ms"),
    (b'{"response": "a", "options": {"fed": 1}}', "options.fed"),
    (b'{"response": "a", "unheard": 1}', "unheard"),
    (b'{"response": "a", "options": {"fed": {"\\ud800": 1}}}', "options"),
    (b'{"response": "a", "options": {"fed": {"x": ["\\ud800"]}}}', "options"),
    (b'{"response": "a", "\\ud800": 1}', "body"),
    ('{"response": "a"}'.encode("utf-16"), "body"),
]


@pytest.mark.parametrize(("body", "field"), WRONG_REQUESTS)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(body: bytes, field: str):
    with pytest.raises(InvalidRequestError) as refused:
        decode(ScoreRequest, body)
    assert refused.value.field == field


def test_no_message_repeats_what_was_sent():
    body = b'{"response": "a", "context": [{"speaker": "my secret", "text": "my secret"}], "my secret": 1}'
    with pytest.raises(InvalidRequestError) as refused:
        decode(ScoreRequest, body)
    assert "my secret" not in refused.value.message


def test_a_whole_request_is_taken_as_it_is():
    request = decode(
        ScoreRequest, '{"context": [{"speaker": "user", "text": ""}], "response": "ja, gærne 😀"}'.encode()
    )
    assert request.response == "ja, gærne 😀"
    assert request.scorers is None


def test_a_dialogue_needs_turns():
    with pytest.raises(InvalidRequestError) as refused:
        decode(DialogueRequest, b'{"turns": []}')
    assert refused.value.field == "turns"


def test_a_wrong_item_of_a_batch_leaves_its_neighbours():
    found = decode_batch(b'{"items": [{"response": "a"}, {"response": "\\ud800"}, 3, {"response": "b"}]}', Limits())
    assert isinstance(found[0], ScoreRequest)
    assert isinstance(found[3], ScoreRequest)
    assert [each.field for each in found[1:3] if isinstance(each, InvalidRequestError)] == [
        "items.1.response",
        "items.2",
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", "body"),
        (b"{}", "items"),
        (b'{"items": []}', "items"),
        (b'{"items": {}}', "items"),
        (b'{"items": [{"response": "a"}], "unheard": 1}', "unheard"),
    ],
)
def test_what_is_no_batch_is_refused_whole(body: bytes, field: str):
    with pytest.raises(InvalidRequestError) as refused:
        decode_batch(body, Limits())
    assert refused.value.field == field


def test_a_batch_of_too_many_items_is_refused_before_they_are_looked_at():
    body = b'{"items": [' + b"1," * 999 + b"1]}"
    with pytest.raises(TooLargeError) as refused:
        decode_batch(body, Limits(max_items=999))
    assert refused.value.field == "items"


def test_a_long_unknown_field_is_cut_in_the_refusal():
    with pytest.raises(InvalidRequestError) as refused:
        decode(ScoreRequest, b'{"response": "a", "' + b"x" * 5000 + b'": 1}')
    assert refused.value.field == "x" * 200


@pytest.mark.parametrize("body", [b"[]", b"3", *(body for body, field in WRONG_REQUESTS if field != "body")])
def test_an_item_is_refused_in_the_words_it_would_be_refused_in_alone(body: bytes):
    with pytest.raises(InvalidRequestError) as alone:
        decode(ScoreRequest, body)
    [item] = decode_batch(b'{"items": [%s]}' % body, Limits())
    assert isinstance(item, InvalidRequestError)
    assert item.message == alone.value.message
