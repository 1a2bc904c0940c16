"""experiments/quality_bundle.py: thresholds of turns that nothing was fitted on."""

import random

import numpy as np
import pytest
from quality_bundle import app
from support.bundles import make_quality_bundle
from support.exporter_data import write_rows
from support.files import invoke
from turnscore_assessment.data.dialogues import read_rated_turns
from turnscore_core.loaded_scorer import choose_variant, load_scorer, score_in_one_batch
from turnscore_exporters.calibration.recalibration import choose_order
from turnscore_models.bundle import read_bundle, starter_bundles

RATINGS = "turn_ratings.jsonl.gz"
STARTER = next(folder for folder in starter_bundles() if folder.name == "quality")


def make_rows(name, count, *, liked="good", disliked="bad"):
    """Every other turn is rated 4, the others 2; nine of ten are of a word that says so."""
    chance = random.Random(name)
    rows = []
    for number in range(count):
        is_good = number % 2 == 0
        word = liked if is_good == (chance.random() < 0.9) else disliked
        response = " ".join([word, *chance.choices("abcdefghijklm", k=3)])
        context = [f"{name} dialogue number {number} begins so"]
        rows.append({"set": name, "context": context, "response": response, "rating": 4.0 if is_good else 2.0})
    return rows


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_quality_bundle(tmp_path_factory.mktemp("shipped") / "bundle")


def run(bundle, data, code=0):
    given = [f"{bundle}/", "--data", data, "--version", "7.0.1", "--output", data / "new"]
    return invoke(app, ["thresholds", *given], code)


def thresholds_of(folder):
    manifest = read_bundle(folder).manifest
    assert manifest.threshold is not None
    assert manifest.good_threshold is not None
    return manifest.threshold, manifest.good_threshold


def values_of(bundle, turns):
    scorer = load_scorer(bundle, choose_variant(bundle)).scorer
    return np.array([raw.value for raw in score_in_one_batch(scorer, [t.to_score() for t in turns])])


def test_it_is_the_order_statistic_of_the_good_turns_that_nothing_was_fitted_on(bundle, tmp_path):
    rows = [*make_rows("persona-zhao", 500), *make_rows("convai2-grade", 300)]
    write_rows(tmp_path / RATINGS, rows)
    run(bundle.folder, tmp_path)
    turns = [each for each in read_rated_turns(tmp_path / RATINGS) if not each.is_fitted_on]
    good = np.array([each.rating >= 3.5 for each in turns])
    values = values_of(bundle, turns)
    wanted = np.sort(values[good])[choose_order(int(good.sum()), 0.05) - 1]
    found, second = thresholds_of(tmp_path / "new")
    assert found.value == pytest.approx(wanted, abs=1e-9)
    assert (found.false_alarm_rate, found.confidence) == (0.05, 0.95)
    assert found.recall.share == pytest.approx((values[~good] < wanted).mean(), abs=1e-4)
    assert f"{len(turns)} dialogues; {good.sum()} good ones" in found.source
    made = read_bundle(tmp_path / "new").manifest
    changed = {name for name, value in made.model_dump().items() if value != bundle.manifest.model_dump()[name]}
    assert changed == {"version", "threshold", "good_threshold"}
    lowest = -np.sort(-values[~good])[choose_order(int((~good).sum()), 0.05) - 1]
    assert second.value == pytest.approx(lowest, abs=1e-9)
    assert (values[~good] >= second.value).mean() < 0.05
    assert second.recall.share == pytest.approx((values[good] >= second.value).mean(), abs=1e-4)
    assert (values[good] < wanted).mean() < 0.05


@pytest.mark.parametrize(
    ("rows", "name", "message"),
    [(200, "quality", "takes at least 59"), (600, "engagement", "is not a bundle of the scorer quality")],
)
def test_too_few_good_turns_and_another_scorers_bundle_are_refused(bundle, tmp_path, rows, name, message):
    write_rows(tmp_path / RATINGS, make_rows("persona-zhao", rows))
    result = run(bundle.folder if name == "quality" else STARTER.with_name(name), tmp_path, 1)
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "new").exists()
