"""What is read of dialogues and of rated turns, and the split that keeps fitting and choosing apart."""

import pytest
from support.exporter_data import write_rows, write_sentiment_data
from turnscore_assessment.data import dialogues
from turnscore_assessment.errors import BadFileError
from turnscore_exporters.quality.spoken_turns import TurnSource, observe_dialogue, read_source

TOLD = TurnSource(name="told", files=("told.jsonl.gz",), stops_observed=True, person_turns=99, bot_turns=99)


def dialogue(*texts, speakers=("user", "system")):
    return dialogues.RecordedDialogue(
        id="d",
        order=0,
        turns=tuple(dialogues.RecordedTurn(speakers[place % 2], text) for place, text in enumerate(texts)),
    )


def test_every_turn_is_told_from_its_speakers_side():
    hello, fine, bye = observe_dialogue(TOLD, dialogue("hi", "hello", "i am fine", "bye"))
    assert (hello.context, hello.response, hello.said_by_person) == ((("user", "hi"),), "hello", False)
    assert (fine.context, fine.said_by_person) == ((("system", "hi"), ("user", "hello")), True)
    assert (bye.next_text, fine.next_text) == (None, "bye")
    *_, last = observe_dialogue(TOLD, dialogue(*"abcdefgh"))
    assert [text for _, text in last.context] == ["d", "e", "f", "g"], "the latest turns alone"


def test_only_a_set_that_shows_stops_tells_that_the_user_went_on():
    silent, said = TurnSource(name="silent", files=()), dialogue("hi", "hello", "so", "what")
    assert [turn.goes_on for turn in observe_dialogue(TOLD, said)] == [True, True, False]
    assert [turn.goes_on for turn in observe_dialogue(silent, said)] == [None, True, None]


def test_a_stop_after_goodbye_says_nothing():
    [answer] = observe_dialogue(TOLD, dialogue("bye bye, gotta go", "see you"))
    assert answer.goes_on is None


def test_a_source_draws_no_more_turns_than_it_says(tmp_path):
    write_sentiment_data(tmp_path)
    source = TurnSource(name="dstc9", files=("dstc9_interactive.jsonl.gz",), person_turns=7, bot_turns=5)
    turns = read_source(tmp_path, source)
    assert sum(turn.said_by_person for turn in turns) == 7
    assert len(turns) == 12
    assert turns == read_source(tmp_path, source)


def test_contexts_that_share_a_long_text_are_one_group_in_any_order_of_rows():
    shared = "Where did you park the red car?"
    groups = dialogues.group_contexts([["hi", shared], [shared.lower(), "by the house of my old aunt"], ["hi", "no"]])
    assert groups[0] == groups[1] != groups[2]
    contexts = [["one two three four five"], ["one two three four five", "six seven eight nine ten"]]
    contexts.append(["six seven eight nine ten"])
    assert dialogues.group_contexts(contexts) == dialogues.group_contexts(contexts[::-1])[::-1]
    assert len(set(dialogues.group_contexts(contexts))) == 1


def test_the_split_is_the_same_on_every_machine():
    assert [dialogues.choose_split(name) == "fit" for name in "abcdef"] == [False, True, True, True, True, True]


def test_rated_turns_of_one_dialogue_are_on_one_side(tmp_path):
    rows = [
        {"set": "own", "context": [f"this is dialogue number {number}", "go on"], "response": str(at), "rating": 2.0}
        for number in range(30)
        for at in range(3)
    ]
    turns = dialogues.read_rated_turns(write_rows(tmp_path / "rated.jsonl.gz", list(rows)))
    sides = {(turn.dialogue, turn.is_fitted_on) for turn in turns}
    assert len(sides) == len({turn.dialogue for turn in turns}) == 30
    assert {is_fitted_on for _, is_fitted_on in sides} == {True, False}
    assert turns[0].context == (("system", "this is dialogue number 0"), ("user", "go on"))
    path = write_rows(tmp_path / "rated.jsonl.gz", [{"set": "own", "context": ["hi"], "response": "ho"}])
    with pytest.raises(BadFileError, match=r"line 1: .*rating"):
        dialogues.read_rated_turns(path)


def test_votes_become_a_quality_from_0_to_1(tmp_path):
    turns = [{"speaker": "user", "text": "hi"}]
    turns.append({"speaker": "system", "text": "ho", "breakdown_votes": {"O": 10, "T": 10, "X": 10}})
    [judged] = dialogues.read_dbdc3(write_rows(tmp_path / "dev.jsonl.gz", [{"id": "1", "system": "S", "turns": turns}]))
    assert (judged.rating, judged.is_fitted_on, judged.context) == (0.5, False, (("user", "hi"),))


def test_thumbs_are_read_of_systems_that_talk_to_people(tmp_path):
    spoken = [{"speaker": "A", "text": "hi"}, {"speaker": "B", "text": "ho", "thumb": 2}]
    rows = [
        {"id": "1", "participants": {"A": "human", "B": "bot"}, "turns": spoken},
        {"id": "2", "participants": {"A": "human", "B": "human"}, "turns": spoken},
    ]
    [thumb] = dialogues.read_thumbs(write_rows(tmp_path / "convai.jsonl.gz", list(rows)))
    assert (thumb.dialogue, thumb.rating, thumb.response) == ("1", 1.0, "ho")


def test_the_population_holds_no_dialogue_that_the_sentiment_model_drew_from(tmp_path):
    write_sentiment_data(tmp_path)
    assert dialogues.read_population(tmp_path).turns == []  # the small data is drawn whole
