"""Reliability against published vectors and against counting every pair."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from simulate_reports import simulate_study as make_study
from support.files import invoke
from turnscore_assessment.commands.main import app
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import find_interval
from turnscore_assessment.ratings import reliability
from turnscore_assessment.ratings.rating_file import RatingFile, write_ratings

# Shrout and Fleiss (1979), table 2: 6 items by 4 raters.
SHROUT_FLEISS = np.array(
    [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], dtype=np.float64
)

_ = np.nan
# Krippendorff (2011), example C: 12 units by 4 coders, with gaps.
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
).T


def test_intraclass_correlations_are_shrout_and_fleiss():
    found = reliability.measure_intraclass(SHROUT_FLEISS)
    figures = (found.agreement, found.consistency, found.agreement_of_mean, found.consistency_of_mean)
    assert figures == pytest.approx((0.290, 0.715, 0.620, 0.909), abs=0.0005)


def test_spearman_and_brown_say_what_more_raters_are_worth():
    assert reliability.step_up(0.322, 40) == pytest.approx(0.95, abs=0.001)
    assert reliability.step_up(0.07, 40) == pytest.approx(0.75, abs=0.001)
    assert reliability.step_up(0.5, 2) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("scale", "expected"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)]
)
def test_alpha_is_krippendorffs(scale, expected):
    assert reliability.measure_alpha(KRIPPENDORFF, scale) == pytest.approx(expected, abs=0.0005)


def draw_tables():
    generator = np.random.default_rng(5)
    whole = generator.normal(0, 1, (25, 1)) + generator.normal(0, 1, (25, 5))
    steps = np.round(2 + whole).clip(0, 4)
    gaps = np.where(generator.random((25, 5)) < 0.4, np.nan, steps)
    few = np.array([[1, 1, _], [1, 1, 1], [1, _, 1], [2, 1, 1], [_, _, 1], [2, 2, _], [_, 1, 2]], dtype=np.float64)
    return [whole - whole.min(), steps, gaps, few, SHROUT_FLEISS, KRIPPENDORFF]


def count_alpha(table, drawn, scale):
    """Alpha of the drawn items from every pair of ratings; copies of an item are not paired with each other."""
    places, raters = np.nonzero(~np.isnan(table[drawn]))
    items, values = drawn[places], table[drawn][places, raters]
    ordered = stats.rankdata(values) if scale == "ordinal" else values
    gaps = np.subtract.outer(ordered, ordered) ** 2
    if scale == "nominal":
        gaps = np.sign(gaps)
    elif scale == "ratio":
        sums = np.add.outer(values, values) ** 2
        gaps = np.divide(gaps, sums, out=np.zeros_like(gaps), where=sums > 0)
    within = np.equal.outer(places, places)
    observed = (gaps * within / (within.sum(axis=1) - 1)).sum() / len(values)
    np.fill_diagonal(within, False)
    expected = gaps[within | ~np.equal.outer(items, items)].mean()
    return float(1 - observed / expected) if expected else math.nan


@pytest.mark.parametrize("number", range(6))
def test_intervals_are_those_of_measuring_every_resample(number, monkeypatch):
    """The sums over items give the same numbers as drawing items and measuring each resample, also in parts."""
    monkeypatch.setattr("turnscore_assessment.figures.DRAWS_AT_ONCE", 200)
    table = draw_tables()[number]

    def draw(rows):
        generator = np.random.default_rng(7)
        return [generator.integers(0, len(rows), len(rows)) for _ in range(60)]

    expected = {"consistency": [], "agreement": [], "agreement_of_mean": []}
    for drawn in draw(table):
        try:
            found = reliability.measure_intraclass(table[drawn])
        except TooFewError:
            continue
        for name, each in expected.items():
            each.append(getattr(found, name))
    bounds = reliability.bound_intraclass(table, 60, 7)
    assert np.isnan(
        reliability.bound_intraclass(table[:5], 60, 7)["agreement"].low
    )  # Five items are too few for an interval.
    for name, each in expected.items():
        interval = find_interval(bounds[name].value, each)
        assert (bounds[name].low, bounds[name].high) == pytest.approx((interval.low, interval.high), nan_ok=True)
    rated = table[(~np.isnan(table)).sum(axis=1) >= 2]
    for scale in reliability.SCALES:
        interval = find_interval(0, [count_alpha(rated, drawn, scale) for drawn in draw(rated)])
        bound = reliability.bound_alpha(table, scale, 60, 7)
        assert (bound.low, bound.high) == pytest.approx((interval.low, interval.high), nan_ok=True)


def test_with_missing_cells_intervals_hold_their_figures_and_no_correlation_is_above_one():
    generator = np.random.default_rng(1)
    table = generator.normal(0, 1, (8, 1)) + generator.normal(0, 0.5, (8, 6))
    table[generator.random(table.shape) < 0.6] = np.nan
    for found in reliability.bound_intraclass(table, 300, 0).values():
        assert 0 <= found.low <= found.value <= found.high <= 1
    nominal = reliability.bound_alpha(table, "nominal", 300, 0)
    assert (nominal.low, nominal.value, nominal.high) == pytest.approx((0, 0, 0))  # No two ratings are the same.


def test_what_cannot_be_measured_is_said(monkeypatch):
    alone = np.array([[1, np.nan], [np.nan, 2]])
    with pytest.raises(TooFewError, match="needs an item with two ratings"):
        reliability.measure_alpha(alone, "interval")
    with pytest.raises(TooFewError, match="there are 1 and 2"):
        reliability.measure_intraclass(np.array([[1.0, 2.0]]))
    with pytest.raises(AssessmentError, match="-1 is one"):
        reliability.measure_alpha(np.array([[-1.0, 2.0]]), "ratio")
    monkeypatch.setattr(reliability, "MOST_RATIO_VALUES", 2)
    with pytest.raises(AssessmentError, match="at most 2 distinct values, not 3"):
        reliability.measure_alpha(np.array([[1.0, 2.0], [3.0, 1.0]]), "ratio")
    assert math.isnan(reliability.measure_alpha(np.ones((3, 2)), "interval"))
    for alike in (np.ones((3, 2)), np.tile([1.0, 2.0], (3, 1)), np.tile([0.1, 0.2, 0.7], (7, 1))):
        assert math.isnan(reliability.measure_intraclass(alike).consistency)


def test_the_command_measures_items_of_a_csv(tmp_path):
    file, out = tmp_path / "shrout.csv", tmp_path / "out" / "found.json"
    cells = [(item, rater, SHROUT_FLEISS[item, rater]) for item in range(6) for rater in range(4)]
    file.write_text("item,rater,value\n" + "".join(f"i{item},r{rater},{value}\n" for item, rater, value in cells))
    done = invoke(app, ["reliability", str(file), "--rounds", "20", "--output", str(out)])
    [found] = json.loads(out.read_text())
    assert found["figures"]["ICC(A,k)"]["value"] == pytest.approx(0.620, abs=0.0005)
    assert (found["name"], found["items"], found["raters"]) == ("shrout", 6, 4)
    assert "intervals of 95 %: other items with these raters; too narrow for other raters" in done.output


def test_dialogues_of_two_systems_are_two_items_whatever_they_are_called(tmp_path):
    study = make_study({"A": 80.0, "B": 50.0, "C": 30.0}, workers=12)
    rows = [row.model_copy(update={"dialogue": "1"}) for row in study.dialogues]
    write_ratings(tmp_path / "ratings.jsonl", RatingFile(study.description, rows))
    assert {len(each.table) for each in reliability.read_items(tmp_path / "ratings.jsonl")} == {3}


WRONG_TABLES = [
    ("item,value\na,1\n", "line 1: has no column `rater`"),
    ("item,rater,value\na,b,nan\n", "line 2: value: 'nan' is not a number"),
    ("item,rater,value\n", "has no rating"),
    ("b\xe9b\xe9,rater,value\n", "cannot be read"),
]


@pytest.mark.parametrize(("content", "reason"), WRONG_TABLES)
def test_a_wrong_csv_is_named_by_line(tmp_path, content, reason):
    file = tmp_path / "ratings.csv"
    file.write_text(content, encoding="latin-1" if "\xe9" in content else "utf-8")
    done = invoke(app, ["reliability", str(file)], code=1)
    assert reason in done.stderr
