"""The examples of the page, and short right answers, get labels and values that fit them from the starter bundle."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from turnscore_assessment.agreement.scoring import make_turn
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scoring import score_turns
from turnscore_models import read_bundle, starter_bundles

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "service/turnscore_service/api/page/static/examples.js"


@pytest.fixture(scope="module")
def quality() -> LoadedScorer:
    [folder] = [each for each in starter_bundles() if each.name == "quality"]
    bundle = read_bundle(folder)
    return load_scorer(bundle, choose_variant(bundle), threads=1)


def labels(quality: LoadedScorer, context: list[tuple[str, str]], *responses: str) -> list[str | None]:
    return [quality.label(raw) for raw in score_turns(quality, [make_turn(context, each) for each in responses])]


def values(quality: LoadedScorer, context: list[tuple[str, str]], *responses: str) -> list[float]:
    return [raw.value for raw in score_turns(quality, [make_turn(context, each) for each in responses])]


def test_the_pages_examples_are_called_what_they_are(quality: LoadedScorer):
    """The first three conversations that a visitor sees: what goes well is not low, what is bad is not good."""
    shown = subprocess.run(
        [
            "node",
            "--input-type=module",
            "-e",
            f'import {{EXAMPLES}} from "{EXAMPLES}"; console.log(JSON.stringify(EXAMPLES))',
        ],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    bad = {
        "ok.",
        "haha that's great!",
        "penguins live in the south.",
        "did you read what i said?",
        "you are too stupid for a thesis.",
        "i am a bot and i don't know.",
    }
    for example in json.loads(shown.stdout):
        said: list[tuple[str, str]] = []
        if example["text"].startswith("{"):
            roles = {"user": "user", "assistant": "system"}
            turns = [
                (roles[each["role"]], each["content"])
                for each in json.loads(example["text"])["messages"]
                if each["role"] in roles
            ]
        else:
            turns = [
                ("user" if line.startswith("User: ") else "system", line.split(": ", 1)[1])
                for line in example["text"].splitlines()
            ]
        for speaker, text in turns:
            if speaker == "system":
                [label] = labels(quality, said, text)
                assert label != ("good" if text in bad else "low"), (text, label)
            said.append((speaker, text))


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


def test_a_short_right_answer_is_worth_more_than_any_filler(quality: LoadedScorer):
    pairs = [
        (right, filler)
        for context, answer in ANSWERED
        for right, *fillers in [values(quality, context, answer, *FILLERS)]
        for filler in fillers
    ]
    assert sum(right > filler for right, filler in pairs) / len(pairs) >= 0.9
