"""turnscore calibrate: a promise that holds over draws of raters, and a new version that says what was promised."""

import random
import subprocess
import sys
from unittest.mock import AsyncMock

import numpy as np
import pytest
from calibration_draws import SHIPPED, draw_heads, run_draws
from scipy.stats import binom
from support.bundles import make_quality_bundle
from support.files import invoke, write_lines
from turnscore_assessment.errors import AgreementError
from turnscore_client._command.registry import app
from turnscore_client.testing import MockTurnScore
from turnscore_core.loaded_scorer import load_scorer, score_in_one_batch
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_exporters.calibration import job, recalibration
from turnscore_exporters.calibration.job import score_by_service
from turnscore_models.bundle import read_bundle, starter_bundles

GOOD_WORDS, BAD_WORDS, OTHERS = ("good", "fine", "nice"), ("bad", "ugly", "wrong"), "abcdefghijklm"


@pytest.mark.parametrize(("turns", "order"), [(59, 1), (92, 1), (93, 2), (124, 3), (181, 5)])
def test_the_order_is_the_largest_that_keeps_the_promise(turns, order):
    """The figures are those of Wilks' tables for 95 % of a population with 95 % confidence."""
    assert recalibration.choose_order(turns, 0.05) == order


@pytest.mark.parametrize(("turns", "draws"), [(110, 10), (200, 15)])
def test_over_draws_of_raters_the_promise_is_kept(turns, draws):
    """`python experiments/calibration_draws.py` draws 500 times."""
    false_alarms, recall, reweighted = run_draws(draws, turns, seed=turns).T
    assert (false_alarms > 0.05).sum() <= binom.ppf(0.999, draws, 0.05)
    assert recall.mean() > 2 * false_alarms.mean()
    assert reweighted.any() == (turns == 200)


def rate_alone(heads, good):
    """Turns without warnings, each of its own dialogue."""
    return recalibration.RatedHeads(heads, good, [str(number) for number in range(len(good))], [()] * len(good))


def test_what_repeats_take_counts_in_every_fit_and_is_scaled_with_the_heads():
    generator = np.random.default_rng(7)
    heads, _ = draw_heads(400, generator)
    shipped = SHIPPED.model_copy(update={"repeats": {"repeats_itself": 3.0}})
    warnings = [("repeats_itself",) if number % 4 == 0 else () for number in range(400)]
    weighed = SHIPPED.weigh(heads) - 3.0 * (np.arange(400) % 4 == 0)
    good = generator.random(400) < 1 / (1 + np.exp(-2 * weighed))
    rated = recalibration.RatedHeads(heads, good, [str(number) for number in range(400)], warnings)
    assert recalibration.weigh_rated(shipped, rated) == pytest.approx(weighed)
    assert [len(rated.take(good).warnings), rated.take(np.arange(400) == 4).warnings] == [good.sum(), [warnings[4]]]
    ways = {way: fit(rated, shipped) for way, fit in recalibration._WAYS.items()}
    scaled = ways["logistic"]
    slope = scaled.weights["overall"] / SHIPPED.weights["overall"]
    assert slope == pytest.approx(2.0, abs=0.5)
    assert scaled.repeats == {"repeats_itself": pytest.approx(3.0 * slope)}
    assert all(formula is not None and formula.repeats for formula in ways.values())
    assert ways["isotonic"] == shipped.model_copy(update={"curve": ways["isotonic"].curve})


def test_a_dialogues_turns_stay_in_one_fold():
    dialogues = [str(number // 7) for number in range(140)]
    folds = recalibration.assign_folds(dialogues)
    assert all(len({folds[place] for place in range(140) if dialogues[place] == name}) == 1 for name in set(dialogues))
    assert sorted(np.bincount(folds)) == [28] * 5


def test_what_ships_stays_where_ratings_have_nothing_to_do_with_it():
    generator = np.random.default_rng(5)
    heads, _ = draw_heads(200, generator)
    good = generator.random(200) < 1 / (1 + np.exp(-SHIPPED.weigh(heads)))
    assert recalibration.choose_formula(rate_alone(heads, good), SHIPPED, with_weights=True).way == "as shipped"
    few = recalibration.choose_formula(
        recalibration.RatedHeads(heads, np.arange(200) > 3, ["x"] * 200, [()] * 200), SHIPPED, with_weights=True
    )
    assert few.formula == SHIPPED
    assert "too few" in few.way


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_quality_bundle(tmp_path_factory.mktemp("calibrated") / "bundle")


def make_rows(count, good_share=0.7):
    """Turns whose raters mostly like good words."""
    chance = random.Random(count)
    rows = []
    for number in range(count):
        is_good = chance.random() < good_share
        liked = is_good if chance.random() < 0.97 else not is_good
        words = chance.choices(GOOD_WORDS if is_good else BAD_WORDS, k=2) + chance.choices(OTHERS, k=3)
        row = {"response": " ".join(words), "label": "good" if liked else "bad", "dialogue": number}
        rows.append({**row, "context": [{"speaker": "user", "text": " ".join(chance.choices(OTHERS, k=3))}]})
    return rows


def run(rows, folder, *options, code=0):
    file = write_lines(folder / "rated.jsonl", *rows)
    return invoke(app, ["calibrate", file, "--output", folder / "new", *options], code)


def test_the_new_version_carries_threshold_and_fit_and_loads(bundle, tmp_path):
    result = run(make_rows(200), tmp_path, "--bundle", f"{bundle.folder}/")
    made = read_bundle(tmp_path / "new")
    before, after = (each.manifest.version.split(".") for each in (bundle, made))
    assert (after[:2], int(after[2]) > 200_000_000) == (before[:2], True)
    threshold = made.manifest.threshold
    assert (threshold.false_alarm_rate, threshold.confidence) == (0.05, 0.95)
    assert threshold.recall.low < threshold.recall.share <= 1
    assert "200 rated turns of 200 dialogues" in threshold.source
    assert made.manifest.options["value"] != bundle.manifest.options["value"]
    loaded = load_scorer(made, "fp32")
    good, bad = score_in_one_batch(loaded.scorer, [TurnToScore([], "good nice"), TurnToScore([], "bad wrong")])
    assert (loaded.label(good), loaded.label(bad)) == ("fair", "low")
    assert (loaded.percentile(good) or 0) > (loaded.percentile(bad) or 0)
    assert f"finds {threshold.recall.share:.0%} of bad turns" in result.output
    assert "warning" not in result.output


UNSERVABLE = [
    (make_rows(12, 0.3), "too few for any promise. Good rated turns that a share of false alarms needs"),
    ([{"response": "a", "rating": 4}] * 80, "give --good-from"),
    ([{"response": "a", "label": "fair"}] * 80, "must be good or bad"),
    ([{"response": "a"}] * 80, "must have a `label`, or a number"),
    ([{"response": "a", "label": ["good"]}] * 80, "must be good or bad"),
    ([{"response": " ", "label": "good"}] * 80, "response: must not be empty"),
    ([{"response": "a", "label": "good", "options": {"usr": {"facts": ["b"]}}}] * 80, "has `options`"),
]


@pytest.mark.parametrize(("rows", "message"), UNSERVABLE)
def test_what_cannot_serve_is_refused_in_a_sentence(bundle, tmp_path, rows, message):
    assert message in run(rows, tmp_path, "--bundle", f"{bundle.folder}/", code=1).output
    assert not (tmp_path / "new").exists()


def test_thirty_ratings_give_a_weaker_promise_and_two_runs_two_versions(bundle, tmp_path, monkeypatch):
    rows = [{**row, "label": "bad" if place < 9 else "good"} for place, row in enumerate(make_rows(30))]
    versions = []
    for seconds in (1_790_000_000, 1_790_000_001):
        folder = tmp_path / str(seconds)
        folder.mkdir()
        monkeypatch.setattr(job.time, "time", lambda seconds=seconds: seconds)
        result = run(rows, folder, "--bundle", f"{bundle.folder}/")
        manifest = read_bundle(folder / "new").manifest
        versions.append(manifest.version)
    assert versions[0] < versions[1]
    assert "at most 14.0% of good turns low, with 95% confidence" in result.output
    assert f"warning: 21 good turns allow no smaller share. {recalibration.describe_promises()}" in result.output
    assert manifest.threshold.false_alarm_rate == 0.14
    assert (manifest.good_threshold, "note: no turn is labelled good" in result.output) == (None, True)


def test_enough_bad_turns_make_the_threshold_of_good(bundle, tmp_path):
    rows = make_rows(240, 0.4)
    result = run(rows, tmp_path, "--bundle", f"{bundle.folder}/")
    loaded = load_scorer(read_bundle(tmp_path / "new"), "fp32")
    turns = [TurnToScore([], row["response"]) for row in rows]
    called = [loaded.label(each) for each in score_in_one_batch(loaded.scorer, turns)]
    pairs = list(zip(called, rows, strict=True))
    good, bad = ([each for each, row in pairs if row["label"] == kind] for kind in ("good", "bad"))
    assert bad.count("good") <= 0.05 * len(bad)
    assert good.count("low") <= 0.05 * len(good)
    assert min(good.count("good"), bad.count("low")) > 20
    assert "note: no turn is labelled good" not in result.output


def test_another_scorer_gets_a_threshold_alone(tmp_path):
    [folder] = [each for each in starter_bundles() if each.name == "engagement"]
    rows = make_rows(80, 0.9)
    result = run(rows, tmp_path, "--scorer", "engagement", "--bundle", f"{folder}/", "--new-version", "9.0.0")
    assert read_bundle(tmp_path / "new").manifest.threshold is not None
    assert "log loss" not in result.output
    (tmp_path / "other").mkdir()
    refused = run(rows, tmp_path / "other", "--bundle", f"{folder}/", code=1)
    assert "is not a bundle of the scorer quality" in refused.output
    assert "is not empty" in run(rows, tmp_path, "--bundle", f"{folder}/", code=1).output


async def test_a_running_service_scores_the_turns_if_it_serves_the_bundle():
    mock = MockTurnScore(scores=lambda request: {"engagement": len(request.response) / 10})
    turns = [TurnToScore([], "a" * (1 + number % 5)) for number in range(130)]
    scores = await score_by_service(mock.async_client(), "engagement", "0" * 64, turns)
    assert [each.value for each in scores] == [len(turn.response) / 10 for turn in turns]
    with pytest.raises(AgreementError, match="does not serve this bundle"):
        await score_by_service(mock.async_client(), "engagement", "1" * 64, turns)
    client = mock.async_client()
    listed = await client.models()
    other = [each.model_copy(update={"model": "engagement:9.0.0"}) for each in listed.models]
    client.models = AsyncMock(return_value=listed.model_copy(update={"models": other}))
    with pytest.raises(AgreementError, match=r"turn 1 was answered by engagement:.*, not by engagement:9.0.0"):
        await score_by_service(client, "engagement", "0" * 64, turns)
    mock.fail_next("overloaded", times=50)
    with pytest.raises(AgreementError, match="does not answer"):
        await score_by_service(mock.async_client(), "engagement", "0" * 64, turns)


def test_the_command_needs_no_torch():
    code = "import sys, turnscore_exporters.calibration.job; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
