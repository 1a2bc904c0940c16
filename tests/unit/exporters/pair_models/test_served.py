"""Relevance and USR as bundles: any BERT or RoBERTa, served as its checkpoint scores."""

import json

import pytest
from support.exporter_data import save_tiny_bert, save_tiny_masked, save_tiny_pair
from support.files import invoke
from turnscore_core.errors import InvalidRequestError
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_exporters.commands import export as app
from turnscore_exporters.errors import EncoderError
from turnscore_exporters.pair_models.models import load_masked_model, load_pair_model, score_masked, score_pairs
from turnscore_models.bundle import read_bundle
from turnscore_wire import Turn

FAMILIES = ("bert", "roberta")
# For what the tokenizer's family does not change.
of_bert = pytest.mark.parametrize("family", ["bert"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return str(request.param)


@pytest.fixture(scope="module")
def usr(family, data_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("usr")
    save_tiny_masked(folder / "masked", family)
    save_tiny_pair(folder / "retrieval", family, labels=2)
    output = folder / "bundle"
    # Random weights tell turns apart by 1e-5: brought to a spread of 1, rounding would be all that is seen.
    parts = {name: {"center": center, "scale": 1, "weight": 0.5} for name, center in (("mlm", -5), ("retrieval", 0.5))}
    (folder / "own.json").write_text(json.dumps({"parts": parts, "bias": 0.25}))
    options = ["--masked", folder / "masked", "--retrieval", folder / "retrieval", "--token-limit", 40]
    options += ["--formula", folder / "own.json"]
    invoke(app, ["usr", *options, "--version", "0.0.1", "--output", output, "--data", data_folder, "--turns", 200])
    return folder, read_bundle(output)


def score(loaded, said, response, *facts):
    options = loaded.scorer.read_options({"facts": list(facts)} if facts else {})
    turn = TurnToScore([Turn(speaker="user", text=said)] if said else [], response, options=options)
    [found] = loaded.scorer.score(loaded.scorer.encode([loaded.scorer.trim(turn)]))
    return found


def test_relevance_is_what_the_checkpoint_says(family, data_folder, tmp_path):
    checkpoint = save_tiny_pair(tmp_path / "checkpoint", family, labels={"bert": 1, "roberta": 2}[family])
    output = tmp_path / "bundle"
    options = ["--version", "0.0.1", "--output", output, "--data", data_folder, "--turns", 200, "--token-limit", 40]
    invoke(app, ["relevance", "--checkpoint", checkpoint, *options])
    bundle = read_bundle(output)
    assert set(bundle.manifest.graphs) == {"fp32", "cpu-int8"}
    loaded = load_scorer(bundle, "fp32")
    plain = load_pair_model(str(checkpoint), 40)
    for pair in (("hi you", "what did you do today"), ("", "ok"), ("whales " * 60, "never " * 60)):
        assert score(loaded, *pair).value == pytest.approx(score_pairs(plain, [pair])[0], abs=1e-4)


def test_usr_s_parts_are_what_the_checkpoints_say(usr):
    folder, bundle = usr
    masked, retrieval = load_masked_model(str(folder / "masked"), 40), load_pair_model(str(folder / "retrieval"), 40)
    loaded = load_scorer(bundle, "fp32")
    for pair in (("hi you", "what did you do today"), ("whales like it", "ok")):
        found = score(loaded, *pair)
        assert set(found.details) == {"mlm", "retrieval"}, "without facts there is no part of them"
        assert found.details["mlm"] == pytest.approx(score_masked(masked, [pair])[0], abs=1e-4)
        assert found.details["retrieval"] == pytest.approx(score_pairs(retrieval, [pair])[0], abs=1e-4)
        parts = bundle.manifest.options["overall"]["parts"]
        value = sum((found.details[name] - p["center"]) / p["scale"] * p["weight"] for name, p in parts.items())
        assert found.value == pytest.approx(value + bundle.manifest.options["overall"]["bias"])


@of_bert
def test_facts_make_a_part_of_their_own_and_a_key_of_their_own(usr):
    folder, bundle = usr
    retrieval = load_pair_model(str(folder / "retrieval"), 40)
    loaded = load_scorer(bundle, "fp32")
    facts = ("whales like the sea", "never saw a film")
    found = score(loaded, "hi you", "what did you do", *facts)
    alone = [float(score_pairs(retrieval, [(fact, "what did you do")])[0]) for fact in facts]
    assert [found.details["fact_1"], found.details["fact_2"]] == pytest.approx(alone, abs=1e-4)
    assert found.details["facts"] == pytest.approx(max(alone), abs=1e-4)
    bare = score(loaded, "hi you", "what did you do")
    assert found.value == pytest.approx(bare.value, abs=1e-6), "the bundle's formula has no weight for facts"
    user, asked = [Turn(speaker="user", text="hi")], (None, ("hi",), ("hi", "you"), ("you", "hi"))
    turns = [TurnToScore(user, "ok", options=options) for options in asked]
    assert len({repr(loaded.scorer.inputs_of(turn)) for turn in turns}) == 4


@of_bert
def test_a_turn_scores_the_same_in_a_batch(usr):
    _, bundle = usr
    for variant in bundle.manifest.graphs:
        scorer = load_scorer(bundle, variant).scorer
        users = [[Turn(speaker="user", text=f"hi you word{n}")] for n in range(9)]
        turns = [TurnToScore(user, "what did you do today " * (1 + n % 3)) for n, user in enumerate(users)]
        packs = scorer.encode(turns)
        together = [each.value for each in scorer.score(packs)]
        alone = [scorer.score([pack])[0].value for pack in packs]
        assert together == pytest.approx(alone, abs=1e-4)


WRONG_FACTS = [
    ({"facts": ["x"] * 9}, "facts", "9 facts; at most 8"),
    ({"facts": ["fine", "x" * 257]}, "facts.1", "257 characters; at most 256"),
    ({"facts": [" "]}, "facts.0", "not empty"),
    ({"facts": [3]}, "facts.0", "must be a text"),
    ({"facts": "one"}, "facts", "must be a list"),
    ({"fact": ["one"]}, "fact", "no such option"),
]


@of_bert
@pytest.mark.parametrize(("options", "field", "said"), WRONG_FACTS)
def test_facts_beyond_their_bounds_are_refused_by_their_place(usr, options, field, said):
    scorer = load_scorer(usr[1], "fp32").scorer
    with pytest.raises(InvalidRequestError, match=said) as refused:
        scorer.read_options(options)
    assert refused.value.field == field
    assert len(scorer.read_options({"facts": ["x" * 256] * 8})) == 8


def test_other_vocabularies_and_a_head_of_three_classes_are_refused(data_folder, tmp_path):
    save_tiny_masked(tmp_path / "masked", "bert")
    save_tiny_pair(tmp_path / "retrieval", "roberta")
    options = ["--masked", tmp_path / "masked", "--retrieval", tmp_path / "retrieval", "--version", "0.0.1"]
    options += ["--output", tmp_path / "bundle", "--data", data_folder, "--turns", 200]
    assert "have different vocabularies" in invoke(app, ["usr", *options], 1).output
    three = save_tiny_pair(tmp_path / "three", "bert", labels=3)
    refused = invoke(app, ["relevance", "--checkpoint", three, *options[4:]], 1)
    assert "its head has 3 classes, expected one or two" in refused.output
    assert not (tmp_path / "bundle").exists()


def test_other_models_and_unknown_names_are_refused(tiny_bert, tmp_path):
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load_pair_model(str(tmp_path / "none"))
    save_tiny_bert(tmp_path)
    config = (tmp_path / "config.json").read_text().replace('"model_type": "bert"', '"model_type": "gpt2"')
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(EncoderError, match="expected bert or roberta"):
        load_masked_model(str(tmp_path))
