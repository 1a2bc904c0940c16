"""Starter bundles on the pages' examples and on conversations written for the tests: labels and values fit them."""

import json
import subprocess
from pathlib import Path

import pytest
from support.files import ROOT
from turnscore_assessment.data.dialogues import LabelledTurn, alternate
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.quality import HEADS
from turnscore_core.scoring import score_turns
from turnscore_models.bundle import read_bundle, starter_bundles

EXAMPLES = ROOT / "service/turnscore_service/api/page/static/examples.js"


def scorer(name):
    [folder] = [each for each in starter_bundles() if each.name == name]
    bundle = read_bundle(folder)
    return load_scorer(bundle, choose_variant(bundle), threads=1)


@pytest.fixture(scope="module")
def quality():
    return scorer("quality")


def ask(quality, context, *responses):
    return score_turns(quality, [LabelledTurn(context=tuple(context), response=each).to_score() for each in responses])


def test_the_pages_examples_are_called_what_they_are(quality):
    """The first three conversations that a visitor sees: what goes well is not low, what is bad is not good."""
    script = f'import {{EXAMPLES}} from "{EXAMPLES}"; console.log(JSON.stringify(EXAMPLES))'
    shown = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    bad = {
        "ok.", "haha that's great!", "penguins live in the south.", "did you read what i said?",
        "you are too stupid for a thesis.", "i am a bot and i don't know.",
    }  # fmt: skip
    speakers = {"User": "user", "user": "user", "Bot": "system", "assistant": "system"}
    seen = set()
    for example in json.loads(shown.stdout):
        if example["text"].startswith("{"):
            lines = [(each["role"], each["content"]) for each in json.loads(example["text"])["messages"]]
        else:
            lines = [line.split(": ", 1) for line in example["text"].splitlines()]
        turns = [(speakers[who], text) for who, text in lines if who in speakers]
        for place, (speaker, text) in enumerate(turns):
            if speaker == "system":
                seen.add(text)
                label = quality.label(*ask(quality, turns[:place], text))
                assert label != ("good" if text in bad else "low"), (text, label)
    assert bad <= seen


def test_the_table_of_good_and_bad_turns_is_what_the_shipped_quality_says(quality):
    page = (ROOT / "docs/reading-the-scores.md").read_text(encoding="utf-8")
    table = page.partition("good and seven bad turns\n")[2].partition("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 14
    for said, response, _, value, percentile, heads in rows:
        texts = said.replace("(", "").replace("/) ", "/ ").split(" / ")  # with what was said before it, if anything
        turns = [("user" if place % 2 == 0 else "system", text) for place, text in enumerate(texts)]
        [raw] = ask(quality, turns, response)
        percentiles = {name: raw.details[f"{name}_percentile"] for name in HEADS}
        lowest = sorted(percentiles, key=percentiles.__getitem__)[:2]
        shown = ", ".join(f"{name} {percentiles[name]:.0f}" for name in lowest)
        assert (f"{raw.value:.2f}", f"{quality.percentile(raw):.0f}", shown) == (value, percentile, heads), response


FILLERS = (
    "ok.", "i don't know.", "Sorry, that's not something I'm able to do.", "Hmm, interesting.", "Whatever you say.",
    "I really could not say.", "That's lovely to hear!", "Unfortunately this isn't something I have information about.",
    "No clue, to be honest.", "Alrighty then.",
)  # fmt: skip
ANSWERED = (
    ([("user", "what is seven plus six?")], "13"),
    ([("user", "how many legs does a spider have?")], "eight."),
    (
        [("user", "open on sundays?"), ("system", "Yes, from ten to two."), ("user", "can i come at one?")],
        "yes, until two.",
    ),
    ([("user", "which is bigger, a mouse or a horse?")], "a horse."),
    ([("user", "what year comes after 2029?")], "2030"),
    ([("user", "do you ship to norway?")], "yes, we do."),
    ([("user", "what colour do you get from blue and yellow?")], "green"),
    ([("user", "when does the train to leeds leave?")], "at 9:40 from platform 2."),
)  # fmt: skip


def test_a_short_right_answer_is_worth_more_than_any_filler(quality):
    found = [ask(quality, context, answer, *FILLERS) for context, answer in ANSWERED]
    above = [right.value > filler.value for right, *fillers in found for filler in fillers]
    assert sum(above) / len(above) >= 0.9


WRITTEN = json.loads(Path(__file__).with_name("hand_written.json").read_text(encoding="utf-8"))
LONG = WRITTEN["long"]


def values(loaded, context, responses):
    """Of responses to a context whose last turn is the user's."""
    return [raw.value for raw in ask(loaded, alternate(context), *responses)]


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
