"""Made-up responses: each kind is what its name says, none is the real one."""

import random

import pytest
from turnscore_exporters.quality import examples
from turnscore_exporters.quality.spoken_turns import SpokenTurn


def turn(dialogue, place, response, *context):
    said = tuple(("user" if (len(context) - at) % 2 else "system", text) for at, text in enumerate(context))
    known = {"source": "own", "next_text": "i like it", "goes_on": True, "said_by_person": True}
    return SpokenTurn(**known, dialogue=dialogue, place=place, context=said, response=response)


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


@pytest.mark.parametrize(
    ("index", "kind", "wanted"),
    [
        (1, examples.NegativeKind.PARROT, {"what do whales like"}),
        (1, examples.NegativeKind.REPEAT, {"i saw the whales today"}),
        (0, examples.NegativeKind.REPEAT, {None}),  # the speaker has said nothing before
        (0, examples.NegativeKind.SAME_DIALOGUE, {"they like the sea", "no never"}),
        (3, examples.NegativeKind.SAME_DIALOGUE, {None}),
        (0, examples.NegativeKind.WRONG_MOOD, {None}),  # neither good nor bad news
        (2, examples.NegativeKind.CONTRADICTION, {None}),
        (5, examples.NegativeKind.CONTRADICTION, {"i don't like word0 and whales"}),
    ],
)
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
        assert (real.kind, real.relevant, real.fluent) == ("", 1.0, 1.0)
        assert all(each.context == real.context and each.response != real.response for each in spoilt)
        assert all(each.relevant < 0.5 and each.continues == 0.0 for each in spoilt)
    assert groups == list(examples.ExampleMaker(TURNS, negatives, long_share=0).epoch(0))
    assert groups != list(examples.ExampleMaker(TURNS, negatives, long_share=0).epoch(1))


def test_a_long_group_differs_by_the_bad_piece_alone(negatives):
    groups = {group[0].response: group for group in examples.ExampleMaker(TURNS, negatives, long_share=1.0).epoch(0)}
    long = groups[examples.join_pieces(["i saw the whales today", "they like the sea", "no never"])]
    real = set(long[0].response.split())
    assert any(real <= set(each.response.split()) for each in long[1:])
