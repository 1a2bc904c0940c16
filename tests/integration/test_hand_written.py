"""The starter quality bundle on conversations written for the tests: what fits comes first, what is wrong falls."""

import json
from pathlib import Path

import pytest
from turnscore_assessment.agreement.scoring import make_turn
from turnscore_assessment.data.dialogues import alternate
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scoring import score_turns
from turnscore_models.bundle import read_bundle, starter_bundles

WRITTEN = json.loads(Path(__file__).with_name("hand_written.json").read_text(encoding="utf-8"))
LONG = WRITTEN["long"]


def scorer(name):
    return load_scorer(read_bundle(next(each for each in starter_bundles() if each.name == name)), "cpu-int8")


@pytest.fixture(scope="module")
def quality():
    return scorer("quality")


def values(loaded, context, responses):
    """Of responses to a context whose last turn is the user's."""
    turns = [make_turn(alternate(context), response) for response in responses]
    return [raw.value for raw in score_turns(loaded, turns)]


def puts_good_first(quality, choice):
    """Before responses that fit nowhere, a parrot of the user's turn, and cheerfulness after bad news."""
    others = [*WRITTEN["faulty_responses"].values(), choice["context"][-1]]
    others += [WRITTEN["cheerful"]] * choice["is_bad_news"]
    good, *rest = values(quality, choice["context"], [choice["good"], *others])
    return good > max(rest)


def test_the_fitting_response_comes_first_in_eleven_of_twelve(quality):
    found = [puts_good_first(quality, choice) for choice in WRITTEN["choices"]]
    assert (len(found), sum(found) >= 11) == (12, True)


def test_nine_of_ten_faults_score_below_the_fitting_response(quality):
    pairs = [values(quality, fault["context"], [fault["good"], fault["bad"]]) for fault in WRITTEN["faults"]]
    assert (len(pairs), sum(good > bad for good, bad in pairs) >= 18) == (20, True)


@pytest.mark.parametrize("fault", LONG["faults"].values())
@pytest.mark.parametrize("share", [0, 0.5, 1], ids=["start", "middle", "end"])
def test_a_fault_in_a_long_reply_is_seen_wherever_it_is(quality, fault, share):
    sentences = LONG["good"].split(". ")
    at = int(share * len(sentences))
    faulty = ". ".join([*sentences[:at], fault.removesuffix("."), *sentences[at:]])
    good, bad = values(quality, LONG["context"], [LONG["good"], faulty])
    assert good > bad


def test_sentiment_stop_gives_bad_responses_less_than_fitting_ones():
    """In a pleasant dialogue; no set that the model was trained on holds these."""
    loaded = scorer("sentiment_stop")
    found = [values(loaded, pair["context"], [pair["fitting"], pair["bad"]]) for pair in WRITTEN["fitting_and_bad"]]
    assert sum(fitting > bad for fitting, bad in found) >= 9
