"""File scoring: what becomes of one line."""

import json

import pytest
from support.files import line_of, patient_with
from turnscore_client._files.rows import failures_in
from turnscore_client._files.scoring import score_line
from turnscore_wire import Limits

DIALOGUE = {"turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]}


async def row_of(mock, content, scorers=None, limits=None):
    async with mock.async_client(max_retries=0) as client:
        _, row = await score_line(client, line_of(content, 7), scorers, patient_with(mock.clock), limits or Limits())
        return row


async def test_of_a_dialogue_the_turns_that_can_be_are_scored_and_the_others_are_named(mock):
    texts = [("system", " "), ("user", "hi"), ("system", "a\0"), ("system", "x" * 99), ("system", "fine")]
    turns = [{"speaker": speaker, "text": text} for speaker, text in texts]
    row = await row_of(mock, {"turns": turns}, limits=Limits(max_text_chars=98))
    added = [sorted(turn.keys() - {"speaker", "text"}) for turn in row["turns"]]
    assert added == [["error"], [], ["error"], ["error"], ["errors", "index", "scores"]]
    codes = [turn["error"]["code"] for turn in row["turns"] if "error" in turn]
    assert codes == ["invalid_request", "invalid_request", "too_large"]
    assert row["turns"][4]["index"] == 4
    assert [turn["text"] for turn in mock.requests[0].body["turns"]] == ["hi", "fine"]
    assert failures_in(row) == [
        "turn 2: invalid_request (turns.2.text): must not contain a NUL character",
        "turn 3: too_large (turns.3.text): 99 characters; at most 98 are allowed",
    ]


@pytest.mark.parametrize(
    ("content", "message", "field"),
    [
        (b"", "not JSON", None),
        (b'{"response": NaN}', "not JSON", None),
        (b'{"response": "a", "id": 1e999}', "not JSON: a number is larger", None),
        (b"[" * 100_000, "not JSON", None),
        (b"7", "not a JSON object", None),
        ({**DIALOGUE, "response": "a"}, "either", None),
        ({"response": ""}, "", "response"),
        ({"turns": [{"speaker": "bot", "text": "hi"}]}, "", "turns.0.speaker"),
    ],
)
async def test_a_bad_line_becomes_an_error_and_asks_nothing(mock, content, message, field):
    row = await row_of(mock, content)
    error = row["error"]
    assert (row["line"], error["code"], error.get("field")) == (7, "invalid_request", field)
    assert message in error["message"]
    assert mock.requests == []


async def test_a_reply_with_a_number_that_json_has_not_is_an_error_of_the_line(mock):
    with mock.client() as client:
        body = client.score(response="a").model_dump_json().replace('"value":0.5', '"value":1e999')
    mock.answer_next(200, body.encode())
    row = await row_of(mock, {"id": 5, "response": "a"})
    assert (row["id"], row["error"]["code"]) == (5, "unexpected_reply")
    json.dumps(row, allow_nan=False)
