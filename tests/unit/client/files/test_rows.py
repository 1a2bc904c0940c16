"""Rows: nothing of a line is lost or misplaced, whatever stands in its turns."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from turnscore_client._errors import InvalidRequestError
from turnscore_client._files.rows import failures_in, is_row_of, read_line, row_of
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


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
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
    "dialogue": "call 7",
    "request_id": "mine",
    "line": 3,
    "error": "none",
    "errors": 0,
    "scores": {"mine": 1},
    "timing_ms": 5,
    "skipped": True,
    "input": "as read",
    "id": "d-1",
}


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
