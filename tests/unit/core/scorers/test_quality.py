"""The quality scorer on a graph whose every word has a known mark."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from support.bundles import GRAPH, LAYOUT, WEIGHTS, make_quality_bundle, open_quality, save_heads
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.loaded_scorer import load_scorer, score_in_one_batch
from turnscore_core.scorers.quality import HEADS, QualityScorer, RowLayout, ValueFormula, lay_out_rows, lay_out_tokens
from turnscore_core.scorers.scorer import RawScore, TurnToScore
from turnscore_models.bundle import write_bundle
from turnscore_models.manifest import CorruptBundleError, InvalidManifestError, MismatchedGraphError
from turnscore_wire import Turn


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_quality_bundle(tmp_path_factory.mktemp("quality") / "bundle")


@pytest.fixture(scope="module")
def scorer(bundle):
    return QualityScorer(bundle, open_quality(bundle.folder))


def turn(response, *context):
    return TurnToScore([Turn(speaker="user", text=text) for text in context], response)


def score(scorer, *turns):
    return score_in_one_batch(scorer, turns)


def test_the_bundle_loads_and_good_words_are_worth_more_than_bad_ones(bundle):
    loaded = load_scorer(bundle, "fp32")
    good, bad = score_in_one_batch(loaded.scorer, [turn("good fine nice"), turn("bad ugly wrong")])
    assert good.value > 0.7 > 0.3 > bad.value
    assert loaded.percentile(good) == pytest.approx(100 * good.value)


def test_every_text_is_a_row_the_latest_context_turn_first(scorer):
    [pack] = scorer.encode([turn("a b c", "z", "d", " ", "e f")])
    a, b, c, d, e, f = range(10, 16)
    assert pack.rows == ((1, a, b, c, 2), (1, e, f, 2), (1, d, 2))
    assert (pack.tokens[0].used, pack.tokens[0].dropped) == (12, 0)


def test_the_value_is_the_formula_of_the_heads(scorer):
    [found] = score(scorer, turn("good a b", "c"))
    logit = np.log(found.details["overall"] / (1 - found.details["overall"]))
    expected = 1 / (1 + np.exp(-(logit + 0.5 * found.details["sentiment"])))
    assert found.value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("said", "taken"), [(("user", "good a b c"), 2.0), (("system", "good a b c"), 1.5), (("user", "good a b"), 0.0)]
)
def test_what_repeats_take_is_taken_from_the_value_alone(tmp_path, said, taken):
    context = [Turn(speaker=said[0], text=said[1]), Turn(speaker="user", text="d e f")][: 1 + (said[0] == "system")]
    asked = TurnToScore(context, "good a b c")
    repeats = {"repeats_user": 2.0, "repeats_itself": 1.5}
    plain, counting = (
        load_scorer(make_quality_bundle(tmp_path / name, value=value), "fp32").scorer
        for name, value in (
            ("plain", {"weights": WEIGHTS, "bias": 0.3}),
            ("counting", {"weights": WEIGHTS, "bias": 0.3, "repeats": repeats}),
        )
    )
    [without], [found] = score_in_one_batch(plain, [asked]), score_in_one_batch(counting, [asked])
    assert found.details == without.details
    assert logit(found.value) == pytest.approx(logit(without.value) - taken, abs=1e-6)


def logit(value):
    return float(np.log(value / (1 - value)))


def test_every_head_comes_with_its_percentile(scorer):
    [found] = score(scorer, turn("good a b", "c"))
    assert list(found.details) == [*HEADS, *(f"{name}_percentile" for name in HEADS)]
    assert found.details["fluent_percentile"] == pytest.approx(100 * found.details["fluent"])
    assert found.details["sentiment_percentile"] == pytest.approx(50 * (1 + found.details["sentiment"]))


def test_of_a_long_response_the_beginning_and_the_end_are_read(scorer):
    good = "good fine nice " * 5
    spoilt = [turn(f"bad bad bad bad {good}"), turn(f"{good} bad bad bad bad")]
    whole, *found = score(scorer, turn(good), *spoilt)
    assert all(each.value < whole.value - 0.05 for each in found)
    [pack] = scorer.encode([turn(" ".join("abcdefghijklmnopqrst"))])
    assert [each - 10 for each in pack.rows[0][1:-1]] == [*range(10), *range(14, 20)]
    assert (pack.tokens[0].used, pack.tokens[0].dropped, pack.warnings) == (18, 4, (("response_cut",),))


def test_a_graph_is_told_of_each_context_token_where_it_is_and_who_said_it():
    layout = RowLayout(context_turns=3, turn_tokens=2, response_tokens=4, response_end_tokens=1)
    asked = lay_out_rows([(False, [9]), (False, [10, 11, 12]), (True, [13]), (False, [14])], [15], layout, 1, 2)
    other = lay_out_rows([], [16], layout, 1, 2)
    assert asked.context == ((1, 14, 2), (1, 13, 2), (1, 11, 12, 2))
    assert (asked.same_speaker, asked.context_dropped) == ((False, True, False), 2)
    begins = {row: 20 * number for number, row in enumerate(asked.context)}
    tokens, places = lay_out_tokens([asked, other], begins)
    assert tokens[0][:10].tolist() == [0, 1, 2, 20, 21, 22, 40, 41, 42, 43]
    assert places[0][:10].tolist() == [0, 0, 0, 3, 3, 3, 4, 4, 4, 4]
    assert {*tokens[0][10:].tolist(), *tokens[1].tolist()} == {-1}


def test_reasons_are_the_lowest_heads_of_a_turn_that_is_not_good(bundle):
    loaded = replace(load_scorer(bundle, "fp32"), threshold=0.2, good_threshold=0.7)
    details = {f"{name}_percentile": 60.0 for name in HEADS}
    details |= {"overall_percentile": 1.0, "engaging_percentile": 9.0, "relevant_percentile": 24.0}
    details |= {"fluent_percentile": 3.0, "continues_percentile": 26.0}
    for value, label, reasons in (
        (0.19, "low", ["fluent", "engaging"]),
        (0.2, "fair", ["fluent", "engaging"]),
        (0.69, "fair", ["fluent", "engaging"]),
        (0.7, "good", []),
    ):
        raw = RawScore(value, details)
        assert (loaded.label(raw), loaded.reasons(raw, loaded.label(raw))) == (label, reasons)
    others = {**details, "fluent_percentile": 30.0, "engaging_percentile": 25.0}
    assert loaded.reasons(RawScore(0.1, others), "low") == ["relevant"]


def test_a_context_of_many_responses_is_computed_once(bundle):
    backend = open_quality(bundle.folder)
    rows = []
    scorer = QualityScorer(bundle, backend)
    run = backend.run
    backend.run = lambda feeds: [rows.append(len(feeds["input_ids"])), run(feeds)][1]
    scorer.score(scorer.encode([turn(each, "x", "y") for each in ("a", "b", "c", "a")]))
    assert rows == [5]


def test_a_graph_that_is_not_cut_in_two_is_refused(bundle):
    with pytest.raises(RuntimeError, match="is not cut in two"):
        QualityScorer(bundle, OnnxBackend(bundle.path_of(GRAPH), threads=1))


def test_what_lies_beyond_the_layout_is_counted_as_dropped(scorer):
    [pack] = scorer.encode([turn("a " * 20, "b c d e f", "e f g")])
    assert pack.tokens[0].dropped == 4 + 1
    assert not turn("a").is_cut
    assert not scorer.trim(turn("a " * 20, "b c d e f")).is_cut
    assert scorer.trim(turn("a", "b", "c", "d")).is_cut
    assert scorer.trim(turn("a" * 500)).is_cut


def test_the_token_estimate_is_not_less_than_the_tokens(scorer):
    for words in (1, 3, 6, 7, 12, 16, 40):
        asked = turn("a " * words, "b c", "d e")
        assert scorer.estimate_tokens(asked) >= scorer.encode([asked])[0].real_tokens


def test_a_file_of_heads_without_its_own_entry_is_refused(tmp_path):
    bundle = make_quality_bundle(tmp_path / "b")
    save_heads(bundle.folder / "heads/quality.onnx", sign=2.0)
    with pytest.raises(CorruptBundleError, match=r"heads 'quality'.* their entry says"):
        write_bundle(bundle.folder, bundle.manifest)
    with pytest.raises(MismatchedGraphError, match="no heads 'quality'"):
        load_scorer(write_bundle(bundle.folder, bundle.manifest.model_copy(update={"heads": {}})), "fp32")


def test_a_curve_bends_the_value():
    formula = ValueFormula(
        weights={"sentiment": 1.0}, bias=0.0, repeats={"repeats_user": 50.0}, curve=((0.1, 0.1), (0.5, 0.2), (0.9, 0.9))
    )
    weighed = [-50.0, 0.0, 0.8, 50.0]
    values = [formula.value_of({"sentiment": each}, ()) for each in weighed]
    assert values == pytest.approx([0.1, 0.2, 0.2 + 0.7 * (1 / (1 + math.exp(-0.8)) - 0.5) / 0.4, 0.9])
    assert values == pytest.approx(formula.values_of(np.array(weighed)))
    assert formula.value_of({"sentiment": 0.0}, ["repeats_user"]) == pytest.approx(0.1)


@pytest.mark.parametrize("points", [[[0, 0]], [[0, 0.5], [1, 0.4]], [[0.5, 0], [0.5, 1]], [[0, 0], [1, 1.5]]])
def test_a_curve_that_does_not_rise_is_refused(tmp_path, points):
    value = {"weights": {}, "bias": 0.0, "curve": points}
    with pytest.raises(RuntimeError, match=r"options are wrong: value"):
        make_quality_bundle(tmp_path / "b", value=value)


WRONG_OPTIONS = [
    ({"value": {"weights": {"humour": 1.0}, "bias": 0.0}}, "humour"),
    ({"value": {"weights": {}, "bias": 0.0, "repeats": {"repeats_user": -1.0}}}, "repeats.repeats_user"),
    ({"value": {"weights": {}, "bias": 0.0, "repeats": {"context_not_read": 1.0}}}, "context_not_read"),
    ({"layout": {**LAYOUT, "window_tokens": 9}}, "window_tokens"),
    ({"layout": {**LAYOUT, "context_turns": 5}}, "context_turns"),
    ({"heads": "nowhere.json"}, "nowhere.json, for which its manifest gives no SHA-256"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS)
def test_wrong_options_are_refused_with_their_name(tmp_path, options, message):
    with pytest.raises((RuntimeError, InvalidManifestError), match=message):
        make_quality_bundle(tmp_path / "b", **options)


def test_a_head_without_a_curve_is_refused(tmp_path):
    bundle = make_quality_bundle(tmp_path / "b")
    file = bundle.path_of("heads.json")
    curves = json.loads(file.read_text())
    del curves["curves"]["fluent"]
    file.write_text(json.dumps(curves))
    write_bundle(bundle.folder, bundle.manifest)
    with pytest.raises(InvalidManifestError, match="no curve of fluent"):
        QualityScorer(bundle, open_quality(bundle.folder))
