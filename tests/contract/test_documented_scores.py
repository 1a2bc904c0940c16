"""What the documents show is what the starter bundles do: README, recipes, integrations and the page's examples."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.served_app import served_app
from turnscore_assessment.agreement.bundles import make_turn, score_turns
from turnscore_core.scorers.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_models import read_bundle, starter_bundles

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
GATE, BEST, WEBHOOK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
VIVID = "i hiked up a volcano and nearly lost my hat. ever been on one?"
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


@pytest.fixture
def ran(quality: LoadedScorer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What a recipe prints, with a service of the starter bundle."""

    def run(recipe: str, **environment: str) -> str:
        with served_app(loaded={"quality": quality}) as url:
            for name, value in {"TURNSCORE_URL": url, **environment}.items():
                monkeypatch.setenv(name, value)
            recipe = re.sub(r"timeout_seconds=0\.\d", "timeout_seconds=30", recipe)  # this machine may be busy
            exec(compile(recipe, "recipe", "exec"), {"__name__": "recipe"})
        return capsys.readouterr().out.strip()

    return run


def test_the_gate_has_a_bare_reply_written_again_and_lets_a_good_one_through(ran):
    assert ran(GATE) == VIVID
    good = GATE.replace('"ok."', '"i went for a swim in the lake, it was freezing! and you?"')
    assert ran(good) == "i went for a swim in the lake, it was freezing! and you?"


def test_the_best_of_several_is_the_one_that_answers(ran):
    assert ran(BEST) == VIVID


def test_a_low_reply_reaches_a_person(ran):
    recipe = WEBHOOK.replace('await web.post(os.environ["WEBHOOK_URL"], json=told)', "pass")
    assert ran(recipe, WEBHOOK_URL="http://127.0.0.1:9/") == "chat-7 goes to a person"


def test_the_integrations_gate_asks_again_for_a_bare_reply_and_keeps_a_good_one(quality: LoadedScorer):
    least = float(re.search(r"Gate\(min_quality=([\d.]+)", (ROOT / "docs/integrations.md").read_text())[1])  # type: ignore[index]
    bare, vivid = values(quality, [("user", "hi, what did you do today?")], "ok.", VIVID)
    assert bare < least <= vivid


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
