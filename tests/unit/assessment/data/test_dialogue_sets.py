"""Descriptions of sets: whose turns are taken, which ends mean something, and what is refused."""

import json
import random

import pytest
from support.exporter_data import write_sentiment_data
from turnscore_assessment.data.dialogues import DialogueSet, LabelledTurn, observe_turns, read_sets, read_turns
from turnscore_assessment.errors import BadFileError
from turnscore_exporters.sentiment.model import BadResponses

DIALOGUE = [("user", "hi"), ("system", "hello"), ("user", "nice"), ("system", "what?")]
GOODBYE = [("user", "hi"), ("system", "hello"), ("user", "bye"), ("system", "see you")]


def describe(**fields):
    record = {"name": "own", "files": ["own.jsonl"], "roles": "speaker", "goes_on": "observed", "reason": "r"}
    return DialogueSet.model_validate({**record, "licence": "MIT", **fields})


def observe(turns, goes_on):
    found = observe_turns(describe(goes_on=goes_on), turns)
    return [(turn.response, turn.next_user, turn.goes_on) for turn in found]


SIGNALS = [
    ("observed", [("hello", "nice", True), ("what?", None, False)]),
    ("unknown", [("hello", "nice", None)]),
    ("answered", [("hello", "nice", True)]),
]


@pytest.mark.parametrize(("goes_on", "found"), SIGNALS)
def test_only_where_users_could_leave_the_last_system_turn_is_a_stop(goes_on, found):
    assert observe(DIALOGUE, goes_on) == found


def test_stops_after_goodbye_and_turns_without_context_or_text_or_that_the_system_follows_up_say_nothing():
    assert observe(GOODBYE, "observed")[-1] == ("see you", None, None)
    turns = [("system", "hello"), ("user", "hi"), ("system", " "), ("user", "?"), ("system", "a"), ("system", "b")]
    assert [response for response, _, _ in observe(turns, "observed")] == ["b"]


def test_the_shipped_descriptions_tell_stops_where_people_could_leave():
    signals = {each.name: each.goes_on for each in read_sets()}
    observed = {"dstc9_interactive": "observed", "convai2017": "observed"}
    assert signals == {**observed, "human_assessment": "unknown", "dialogue_text": "answered"}


def test_every_set_is_read_as_it_is_described(tmp_path):
    turns = read_turns(write_sentiment_data(tmp_path), read_sets())
    assert len(turns["dstc9_interactive"]) == 50 * 4
    assert {turn.goes_on for turn in turns["human_assessment"]} == {None}
    assert len(turns["human_assessment"]) == 6 * 3  # the quality control's dialogues are left out
    assert all(turn.goes_on for turn in turns["dialogue_text"])
    assert all(turn.context[-1][0] == "user" for turn in turns["convai2017"])


def test_a_wrong_description_is_refused_by_its_field(tmp_path):
    (tmp_path / "sets.json").write_text(json.dumps([{"name": "own", "files": []}]))
    with pytest.raises(BadFileError, match=r"0\.files"):
        read_sets(tmp_path / "sets.json")


def test_bad_responses_are_of_every_kind():
    turns = [
        LabelledTurn(set_name="own", context=(("system", asked), ("user", said)), response=response)
        for asked, said, response in (
            ("what do you do", "hm", "i sing in a choir"), ("so", "you are a moron", "it rains"),
        )
    ]  # fmt: skip
    makes, generator = BadResponses(turns), random.Random(0)
    made = {makes.make(turns[0], generator) for _ in range(60)}
    assert makes.insults == ["you are a moron"]
    assert {"it rains", "what do you do", "you are a moron"} <= made
    assert len(made) > 6  # garbled ones
