"""File scoring: what becomes of one line."""

import json

import pytest
from support.files import line_of, patient_with
from turnscore_client._files.scoring import score_line
from turnscore_wire import Limits

DIALOGUE = {"turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]}


async def row_of(mock, content, scorers=None, limits=None):
    async with mock.async_client(max_retries=0) as client:
        _, row = await score_line(client, line_of(content, 7), scorers, patient_with(mock.clock), limits or Limits())
        return row


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
