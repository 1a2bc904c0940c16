"""The engine around fake scorers: what is asked once, what fails alone, what is refused, what is shared."""

from pathlib import Path

import pytest
from support.fakes import NOT_A_NUMBER, POISON, FakeEncoder, FakeScorer, loaded_fake
from support.versions import dialogue, engine_of, values
from turnscore_core.dialogues import Dialogue
from turnscore_core.engine import Engine, OptionsError
from turnscore_models.manifest import BundleError
from turnscore_wire import ErrorCode, Turn


def test_every_system_turn_is_scored_in_the_order_of_the_dialogues(fake_scorer):
    with engine_of(fake=fake_scorer, other=FakeScorer()) as engine:
        first, second = engine.score([dialogue("a", "hi", "one two", "and", "three"), dialogue("b", "hi", "x y z")])
    assert (first.id, second.id) == ("a", "b")
    assert [turn.index for turn in first.turns] == [1, 3]
    assert values(first) == [0.02, 0.01]
    assert values(second, "other") == [0.03]
    assert list(second.turns[0].scores) == ["fake", "other"]
    aggregate = first.aggregates["fake"]
    assert (aggregate.mean, aggregate.min, aggregate.max, aggregate.turns) == (0.015, 0.01, 0.02, 2)
    assert first.error is None


def test_batches_hold_turns_of_one_width_across_dialogues_the_widest_first(fake_scorer):
    with engine_of(fake=fake_scorer) as engine:
        engine.score([dialogue(str(n), "hi", f"{n} " * 20, "and", f"{n} " * 4) for n in range(3)])
    assert fake_scorer.batches == [[20, 20, 20], [4, 4, 4]]


def test_equal_turns_of_a_call_are_computed_once(fake_scorer):
    with engine_of(fake=fake_scorer) as engine:
        results = engine.score([dialogue(each, "hi", "how are you?", "good", each) for each in "abcc"])
        assert engine.turns_computed == 4
    assert [values(each) for each in results] == [[0.03, 0.01]] * 4
    assert not any(turn.scores["fake"].cached for each in results for turn in each.turns)


def test_what_is_wrong_with_a_dialogue_is_its_own_error_and_names_the_limit(fake_scorer):
    turn = Turn(speaker="user", text="hi")
    with engine_of(fake=fake_scorer) as engine:
        *wrong, right = engine.score(
            [
                Dialogue("many", [turn] * 1025),
                Dialogue("long", [turn, Turn(speaker="system", text="a" * 8001)]),
                Dialogue("silent", [turn]),
                Dialogue("empty", []),
                Dialogue("unreadable", [turn, Turn.model_construct(speaker="system", text=None)]),
                dialogue("right", "hi", "hello"),
            ]
        )
    assert [f"{each.error.field}: {each.error.message}" for each in wrong if each.error] == [
        "turns: 1025 turns; at most 1024 are allowed at once",
        "turns.1.text: 8001 characters; at most 8000 are allowed",
        "turns: there is no system turn to score",
        "turns: there is no system turn to score",
        "turns: the dialogue could not be read (TypeError)",
    ]
    assert all(each.turns == [] and each.aggregates == {} for each in wrong)
    assert (right.error, values(right)) == (None, [0.01])


def test_a_system_turn_without_a_text_costs_that_turn_alone(fake_scorer):
    with engine_of(fake=fake_scorer, other=FakeScorer()) as engine:
        [result] = engine.score([dialogue("blank", "hi", " \u200b", "what?", "\U0001f469\u200d\U0001f469")])
    blank, spoken = result.turns
    assert blank.scores == {}
    assert {name: (each.code, each.field) for name, each in blank.errors.items()} == {
        "fake": (ErrorCode.INVALID_REQUEST, "turns.1.text"),
        "other": (ErrorCode.INVALID_REQUEST, "turns.1.text"),
    }
    assert spoken.errors == {}
    assert result.aggregates["fake"].turns == 1


UNCOMPUTABLE = [
    (POISON, "the model failed on this turn"),
    (NOT_A_NUMBER, "fake gave a score that is not a number"),
    ("untokenizable", "fake could not tokenize the text"),
]


@pytest.mark.parametrize(("text", "message"), UNCOMPUTABLE)
def test_a_turn_that_cannot_be_computed_fails_alone(fake_scorer, text, message):
    with engine_of(fake=fake_scorer) as engine:
        bad, good = engine.score([dialogue("bad", "hi", text, "and", "more"), dialogue("good", "hi", "fine")])
    failed, spoken = bad.turns
    assert {name: each.message for name, each in failed.errors.items()} == {"fake": message}
    assert failed.scores == {}
    assert spoken.scores["fake"].value == 0.01
    assert bad.error is None
    assert values(good) == [0.01]


class OnePassScorer(FakeScorer):
    """Computes a dialogue's turns together, as FED does."""

    shares_passes = True

    def __init__(self):
        super().__init__()
        self.asked = []

    def inputs_of(self, turn):
        return (*(each.text for each in turn.context), turn.response)

    def encode(self, turns):
        self.asked.append([turn.response for turn in turns])
        return super().encode(turns)


def test_a_scorer_of_one_pass_gets_a_dialogue_s_turns_together_and_equal_dialogues_once():
    scorer = OnePassScorer()
    greeting = ("hi", "hello")
    with engine_of(fake=scorer) as engine:
        engine.score(
            [
                dialogue("a", *greeting, "so?", "no"),
                dialogue("b", *greeting, "so?", "yes"),
                dialogue("again", *greeting, "so?", "no"),
            ]
        )
        assert engine.turns_computed == 4
    assert scorer.asked == [["hello", "no"], ["hello", "yes"]]


WRONG_OPTIONS = [
    ({"threads": 0}, "threads"),
    ({"device": "tpu"}, "device"),
    ({"thresholds": {"fake": float("nan")}}, "thresholds.fake"),
    ({"options": {"mood": {}}}, "options.mood"),
    ({"options": {"fake": {"charming": 1}}}, "options.fake.charming"),
]


@pytest.mark.parametrize(("given", "field"), WRONG_OPTIONS)
def test_a_wrong_option_is_refused_by_name(fake_scorer, given, field):
    with pytest.raises(OptionsError, match="^" + field.replace(".", r"\.")) as raised:
        engine_of(fake=fake_scorer, **given)
    assert raised.value.field == field


def test_a_bundle_under_another_scorer_s_name_and_one_that_scores_no_turns_are_refused(fake_scorer):
    with pytest.raises(BundleError, match="the bundle in /somewhere has no scorer mood; loaded: fake"):
        engine_of(fake=fake_scorer, models={"mood": Path("/somewhere")})
    with pytest.raises(BundleError, match=r"encoder:1\.0\.0 compares texts"):
        engine_of(fake=fake_scorer, encoder=FakeEncoder())


def test_the_environment_changes_nothing(fake_scorer, monkeypatch):
    monkeypatch.setenv("TURNSCORE_MODELS", "unknown")
    monkeypatch.setenv("TURNSCORE_LIMITS__MAX_TURNS", "1")
    monkeypatch.setenv("TURNSCORE_NOBODY_READS", "this")
    monkeypatch.setenv("TURNSCORE_RUNTIME__THREADS", "several")
    asked = []

    def load(settings):
        asked.append(settings)
        return {"fake": loaded_fake(fake_scorer)}

    with Engine([Path("bundle")], threads=2, concurrent_batches=3, load=load) as engine:
        assert engine.score([dialogue("a", "hi", "hello")])[0].error is None
    [settings] = asked
    assert settings.models == (str(Path("bundle").absolute()),)
    assert (settings.threads, settings.concurrent_batches, settings.device) == (2, 3, "cpu")


def test_what_is_loaded_is_named_with_all_that_can_change_a_score(fake_scorer):
    fake_scorer.threshold = 0.5
    with engine_of(fake=fake_scorer) as engine:
        [model] = engine.models
        [result] = engine.score([dialogue("a", "hi", "hello")])
    assert (model.scorer, model.model, model.graph, model.threshold) == ("fake", "fake:1.0.0", "fp32", 0.5)
    assert len(model.digest) == 64
    assert result.turns[0].scores["fake"].label == "low"


class Kept:
    """A store of scores in the process."""

    def __init__(self):
        self.entries = {}

    def fetch(self, keys):
        return [self.entries.get(key) for key in keys]

    def keep(self, entries):
        self.entries.update(entries)


def test_what_another_engine_computed_is_found_in_the_shared_scores():
    kept = Kept()
    said = [dialogue("a", "hi", "hello you"), dialogue("b", "hi", NOT_A_NUMBER)]
    with engine_of(fake=FakeScorer(), shared=kept) as engine:
        first, _ = engine.score(said)
    with engine_of(fake=FakeScorer(), shared=kept) as engine:
        second, failed = engine.score(said)
        assert engine.turns_computed == 1  # what failed is asked again
        known = second.turns[0].scores["fake"]
        assert known.cached
        assert known.model_copy(update={"cached": False}) == first.turns[0].scores["fake"]
        assert list(failed.turns[0].errors) == ["fake"]
        engine.score([dialogue("c", "hi", "another")])
        assert engine.turns_computed == 2


@pytest.mark.parametrize("given", [{"namespace": "other"}, {"secret": b"s"}])
def test_scores_of_another_namespace_or_secret_are_not_found(given):
    kept = Kept()
    for own in ({}, given):
        with engine_of(fake=FakeScorer(), shared=kept, **own) as engine:
            engine.score([dialogue("a", "hi", "hello you")])
            assert engine.turns_computed == 1
