"""What quality is trained on: turns of dialogues and ratings, how they are split, and made-up responses."""

import random

import pytest
from support.exporter_data import write_rows, write_sentiment_data
from turnscore_assessment.data import dialogues
from turnscore_assessment.errors import BadFileError
from turnscore_exporters.quality import examples
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
    assert (hello.context, hello.response, hello.system) == ((("user", "hi"),), "hello", "bot")
    assert (fine.context, fine.system) == ((("system", "hi"), ("user", "hello")), "person")
    assert (bye.next_user, fine.next_user) == (None, "bye")
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
    assert sum(turn.system == "person" for turn in turns) == 7
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


def turn(dialogue, place, response, *context):
    said = tuple(("user" if (len(context) - at) % 2 else "system", text) for at, text in enumerate(context))
    known = {"next_user": "i like it", "labels": {"goes_on": 1.0}, "system": "person"}
    return dialogues.LabelledTurn(**known, dialogue=dialogue, place=place, context=said, response=response)


TURNS = [
    turn("sea", 1, "i saw the whales today", "what did you do"),
    turn("sea", 3, "they like the sea", "i saw the whales today", "what do whales like"),
    turn("sea", 5, "no never", "they like the sea", "did you know it"),
    turn("sad", 1, "hello", "my dog died , this is terrible and so sad"),
    turn("glad", 1, "ok", "i won , this is great , i am so happy"),
    *(turn(f"d{number}", 1, f"i like word{number} and whales", f"about word{number}") for number in range(70)),
]


@pytest.fixture(scope="module")
def negatives():
    return examples.Negatives(TURNS)


def made(negatives, index, kind):
    return {negatives.make(index, kind, random.Random(seed)) for seed in range(20)}


def test_every_kind_has_a_share_and_labels_and_gives_no_real_response(negatives):
    assert set(examples.LABELS) == set(examples.NegativeKind)
    assert sum(each.share for each in examples.LABELS.values()) == pytest.approx(1.0)
    for kind in examples.NegativeKind:
        for index in range(6):
            assert TURNS[index].response not in made(negatives, index, kind), kind


KINDS = [
    (1, examples.NegativeKind.PARROT, {"what do whales like"}),
    (1, examples.NegativeKind.REPEAT, {"i saw the whales today"}),
    (0, examples.NegativeKind.REPEAT, {None}),  # the speaker has said nothing before
    (0, examples.NegativeKind.SAME_DIALOGUE, {"they like the sea", "no never"}),
    (3, examples.NegativeKind.SAME_DIALOGUE, {None}),
    (0, examples.NegativeKind.WRONG_MOOD, {None}),  # neither good nor bad news
    (2, examples.NegativeKind.CONTRADICTION, {None}),
    (5, examples.NegativeKind.CONTRADICTION, {"i don't like word0 and whales"}),
]


@pytest.mark.parametrize(("index", "kind", "wanted"), KINDS)
def test_each_kind_is_what_its_name_says(negatives, index, kind, wanted):
    assert made(negatives, index, kind) == wanted


def test_a_random_response_is_of_like_length_and_the_wrong_mood_is_cheerful_after_bad_news(negatives):
    found = made(negatives, 0, examples.NegativeKind.RANDOM) - {None}
    assert {examples.length_class(text or "") for text in found} == {examples.length_class(TURNS[0].response)}
    assert made(negatives, 3, examples.NegativeKind.WRONG_MOOD) <= set(examples.CHEERFUL)
    assert made(negatives, 4, examples.NegativeKind.WRONG_MOOD) <= set(examples.GLOOMY)


def test_an_insult_is_short_and_at_somebody():
    texts = ("you are an idiot", "shut up", "what a stupid film", "you know the idea of idiots " * 4)
    assert [examples.is_insult(text) for text in texts] == [True, True, False, False]


def test_a_group_begins_with_what_was_really_said(negatives):
    groups = list(examples.ExampleMaker(TURNS, negatives, long_share=0).epoch(0))
    assert len(groups) == len(TURNS)
    for real, *spoilt in groups:
        assert (real.system, real.labels["fits"], real.labels["continues"]) == ("person", 1.0, 1.0)
        assert all(each.context == real.context and each.response != real.response for each in spoilt)
        assert all(each.labels["fits"] < 0.5 and each.labels["continues"] == 0.0 for each in spoilt)
    assert groups == list(examples.ExampleMaker(TURNS, negatives, long_share=0).epoch(0))
    assert groups != list(examples.ExampleMaker(TURNS, negatives, long_share=0).epoch(1))


def test_a_long_group_differs_by_the_bad_piece_alone(negatives):
    groups = {group[0].response: group for group in examples.ExampleMaker(TURNS, negatives, long_share=1.0).epoch(0)}
    long = groups[examples.join_pieces(["i saw the whales today", "they like the sea", "no never"])]
    real = set(long[0].response.split())
    assert any(real <= set(each.response.split()) for each in long[1:])
