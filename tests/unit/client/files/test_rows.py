"""Rows: nothing of a line is lost or misplaced, whatever stands in it."""

import gzip
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import line_of, patient_with
from turnscore_client._errors import InvalidRequestError
from turnscore_client._files.rows import failures_in, is_row_of, read_line, read_lines, row_of
from turnscore_client._files.scoring import score_line
from turnscore_client._mock import MockAnswers
from turnscore_wire import DialogueRequest, Limits, ScoreRequest

LIMITS = Limits(max_text_chars=20)
TEXTS = st.sampled_from(["hi", "and you?", " ", "", "a\0b", "x" * 21])
EXTRA = st.dictionaries(st.sampled_from(["quality", "at", "votes", "errors"]), st.integers(0, 9), max_size=2)
TURN = st.builds(
    lambda speaker, text, extra: {**extra, "speaker": speaker, "text": text},
    st.sampled_from(["user", "system"]),
    TEXTS,
    EXTRA,
)
LINE = st.builds(
    lambda turns, extra: {**extra, "id": "d-1", "turns": turns}, st.lists(TURN, min_size=1, max_size=7), EXTRA
)


def can_be_scored(turn):
    return turn["speaker"] == "system" and can_be_read(turn) and bool(turn["text"].strip())


def is_asked(turn):
    return can_be_scored(turn) or (turn["speaker"] == "user" and can_be_read(turn))


def can_be_read(turn):
    return "\0" not in turn["text"] and len(turn["text"]) <= 20


@given(LINE)
def test_every_turn_keeps_its_fields_and_has_its_own_scores_or_the_reason_why_not(line):
    raw = json.dumps(line).encode()
    try:
        asked = read_line(raw, None, LIMITS)
    except InvalidRequestError:
        assert not any(is_asked(turn) for turn in line["turns"])
        return
    if not any(can_be_scored(turn) for turn in line["turns"]):
        return
    answers = MockAnswers(lambda request: {"fake": len(request.context) / 10}, LIMITS, "r")
    request = DialogueRequest.model_validate({"turns": asked.fields["turns"]})
    row = row_of(asked, answers.answer("/v1/score_dialogue", request.model_dump_json(exclude_unset=True).encode()))
    before = 0
    for turn, written in zip(line["turns"], row["turns"], strict=True):
        own = {name: value for name, value in turn.items() if name != "errors"}
        assert {name: written[name] for name in own} == own
        assert ("scores" in written) == can_be_scored(turn)
        if "scores" in written:
            assert written["scores"]["fake"]["value"] == before / 10
        assert ("error" in written) == (not is_asked(turn))
        before += "error" not in written
    assert len(failures_in(row)) == sum(not can_be_read(turn) for turn in line["turns"])
    assert is_row_of({**row, "line": 1}, raw)
    other = {**line, "turns": [{**line["turns"][0], "text": "something else"}, *line["turns"][1:]]}
    assert not is_row_of({**row, "line": 1}, json.dumps(other).encode())


OWN = {
    "dialogue": "call 7", "request_id": "mine", "line": 3, "error": "none", "errors": 0, "scores": {"mine": 1},
    "timing_ms": 5, "skipped": True, "input": "as read", "id": "d-1",
}  # fmt: skip


def scored(line):
    """The row that the line becomes, with its number."""
    asked = read_line(json.dumps(line).encode(), None, LIMITS)
    path, kind = ("/v1/score_dialogue", DialogueRequest) if "turns" in line else ("/v1/score", ScoreRequest)
    fields = {name: value for name, value in asked.fields.items() if name in kind.model_fields}
    request = kind.model_validate(fields).model_dump_json(exclude_unset=True).encode()
    answers = MockAnswers(lambda request: {"fake": 0.5}, LIMITS, "r")
    return {**row_of(asked, answers.answer(path, request)), "line": 7}


def test_fields_that_are_named_as_ours_are_kept_under_input():
    turns = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello", "index": "a7", "score": 1}]
    row = scored({**OWN, "turns": turns})
    assert row["input"] == {name: value for name, value in OWN.items() if name != "id"}
    assert (row["id"], row["line"], row["turns"][1]["index"]) == ("d-1", 7, 1)
    assert (row["turns"][1]["input"], row["turns"][1]["score"]) == ({"index": "a7"}, 1)
    assert is_row_of(row, json.dumps({**OWN, "turns": turns}).encode())


def test_scoring_an_output_again_gives_the_same_rows():
    row = scored({**OWN, "turns": [{"speaker": "system", "text": "hello", "index": "a7"}]})
    assert scored(row) == row


DIALOGUE = {"turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]}


async def scored_row(mock, content, scorers=None, limits=None):
    async with mock.async_client(max_retries=0) as client:
        return await score_line(client, line_of(content, 7), scorers, patient_with(mock.clock), limits or Limits())


async def test_of_a_dialogue_the_turns_that_can_be_are_scored_and_the_others_are_named(mock):
    texts = [("system", " "), ("user", "hi"), ("system", "a\0"), ("system", "x" * 99), ("system", "fine")]
    turns = [{"speaker": speaker, "text": text} for speaker, text in texts]
    row = await scored_row(mock, {"turns": turns}, limits=Limits(max_text_chars=98))
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


BAD_LINES = [
    (b"", "not JSON", None), (b'{"response": NaN}', "not JSON", None),
    (b'{"response": "a", "id": 1e999}', "not JSON: a number is larger", None),
    (b"[" * 100_000, "not JSON", None), (b"7", "not a JSON object", None),
    ({**DIALOGUE, "response": "a"}, "either", None), ({"response": ""}, "", "response"),
    ({"turns": [{"speaker": "bot", "text": "hi"}]}, "", "turns.0.speaker"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message", "field"), BAD_LINES)
async def test_a_bad_line_becomes_an_error_and_asks_nothing(mock, content, message, field):
    row = await scored_row(mock, content)
    error = row["error"]
    assert (row["line"], error["code"], error.get("field")) == (7, "invalid_request", field)
    assert message in error["message"]
    assert mock.requests == []


async def test_a_reply_with_a_number_that_json_has_not_is_an_error_of_the_line(mock):
    with mock.client() as client:
        body = client.score(response="a").model_dump_json().replace('"value":0.5', '"value":1e999')
    mock.answer_next(200, body.encode())
    row = await scored_row(mock, {"id": 5, "response": "a"})
    assert (row["id"], row["error"]["code"]) == (5, "unexpected_reply")
    json.dumps(row, allow_nan=False)


def test_a_broken_packed_file_is_an_error_after_its_good_lines(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(os.urandom(100_000).hex().encode() + b"\n")[:-5_000])
    with pytest.raises(EOFError):
        list(read_lines(path))
