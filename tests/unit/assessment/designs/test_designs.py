"""Designs: sheets that are blind, balanced and repeatable; models of answers; and intervals that hold the truth."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from simulate_designs import CRITERION, SimulatedRaters, StudySize, make_key
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.designs import analysis
from turnscore_assessment.designs.form import (
    AskedCriterion,
    DesignItem,
    DesignKind,
    DesignSpec,
    build_option_table,
    write_design,
)
from turnscore_assessment.designs.making import DesignError, deal_tuples, make_design, measure_balance
from turnscore_assessment.errors import TooFewError

SYSTEMS = ("alpha-9", "beta-9", "gamma-9")
CRITERIA = [AskedCriterion(name="fun"), AskedCriterion(name="clear")]
DULL = AskedCriterion(name="dull", direction="negative")


def item(dialogue, system, response, **more):
    turn = LabelledTurn(context=(("user", f"question {dialogue}"),), response=response)
    return DesignItem(dialogue=f"d{dialogue}", system=system, turn=turn, **more)


def make_items(dialogues=6, systems=SYSTEMS, reference=True):
    items = []
    for dialogue in range(dialogues):
        items += [item(dialogue, system, f"reply {number} to {dialogue}") for number, system in enumerate(systems)]
        if reference:
            items.append(item(dialogue, "human", f"ideal {dialogue}", reference=True, standard=20.0 + dialogue))
    return items


def make(kind, items=None, **options):
    spec = DesignSpec(kind=kind, **{"study": "s", "criteria": CRITERIA, "raters": 4, **options})
    return make_design(make_items() if items is None else items, spec)


@pytest.mark.parametrize("kind", DesignKind)
def test_no_sheet_names_a_system(kind, tmp_path):
    write_design(tmp_path, make(kind))
    sheets = list((tmp_path / "sheets").iterdir())
    assert len(sheets) == 4
    for sheet in sheets:
        text = sheet.read_text()
        assert not any(system in text for system in SYSTEMS)
        assert "human" not in text
    key = json.loads((tmp_path / "key.json").read_text())
    assert {item["system"] for item in key["items"].values()} >= set(SYSTEMS)


def test_the_same_seed_makes_the_same_files(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_design(tmp_path / name, make(DesignKind.BEST_WORST, seed=seed))
    first, same, other = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in "abc"
    )
    assert len(first) == 5
    assert first == same != other


@pytest.mark.parametrize("kind", DesignKind)
def test_dialogues_and_systems_are_dealt_evenly_and_no_rater_sees_a_dialogue_twice(kind):
    key = make(kind, make_items(10), raters=7, per_rater=4).key
    by_rater = Counter((question.rater, question.dialogue) for question in key.questions)
    by_dialogue = Counter(question.dialogue for question in key.questions)
    assert max(by_rater.values()) == 1
    assert max(by_dialogue.values()) - min(by_dialogue.values()) <= 1
    for name, most in (("appearances", 1), ("in_position", 1), ("meetings", 1)):
        low, high = key.balance[name]
        assert high - low <= most, name
    assert [question.question for question in key.questions if question.rater == "r1"] == [1, 2, 3, 4]


def test_magnitude_estimation_shows_the_reference_with_its_worth_and_does_not_judge_it():
    worths = {DesignKind.RANK_BASED_MAGNITUDE: {100.0}, DesignKind.BIASED_MAGNITUDE: {20.0 + n for n in range(6)}}
    for kind, worth in worths.items():
        design = make(kind)
        assert {item.system for item in design.key.items.values()} == set(SYSTEMS)
        assert {question.standard for question in design.key.questions} == worth
        assert set(design.references) == {f"d{n}" for n in range(6)}
    likert = make(DesignKind.LIKERT)
    assert {item.system for item in likert.key.items.values()} == {*SYSTEMS, "human"}
    assert likert.references == {}


def test_what_cannot_be_made_is_named():
    items = make_items(reference=False)
    many = [item("", f"s{n}", "x") for n in range(201)]
    plain = [item.model_copy(update={"standard": None}) for item in make_items()]
    twice = [*make_items(), make_items()[3].model_copy(update={"system": "other"})]
    cases = [
        (DesignKind.RANK_BASED_MAGNITUDE, items, {}, "dialogue 'd0' has no reference, which rank-based"),
        (DesignKind.PAIRWISE, items[1:], {}, "dialogue 'd0' has nothing of system 'alpha-9'"),
        (DesignKind.LIKERT, [*items, items[0]], {}, "dialogue 'd0' has two items of system 'alpha-9'"),
        (DesignKind.LIKERT, items, {"per_rater": 7}, "per-rater: 7 dialogues, but there are 6"),
        (DesignKind.LIKERT, items, {"raters": 20_000}, "more than 100,000"),
        (DesignKind.LIKERT, items, {"criteria": [CRITERIA[0], CRITERIA[0]]}, "criterion: two are called 'fun'"),
        (DesignKind.RANKING, items, {"criteria": [DULL]}, "'dull' is negative, and ranking asks for the better option"),
        (DesignKind.LIKERT, items, {"criteria": []}, "criterion: there are 0"),
        (DesignKind.LIKERT, items, {"study": ""}, "study: must have 1 to 200 characters"),
        (DesignKind.LIKERT, many, {}, "there are 201 systems; at most 200"),
        (DesignKind.RANKING, many[:12], {"tuple_size": 11}, "tuple-size: 11; a question compares 2 to 10 options"),
        (DesignKind.LIKERT, many[:200], {"raters": 1001}, "would show more than 200,000 options"),
        (DesignKind.BIASED_MAGNITUDE, plain, {}, "the reference of dialogue 'd0' has no `standard`"),
        (DesignKind.LIKERT, twice, {}, "dialogue 'd0' has two references"),
    ]
    for kind, given, options, reason in cases:
        with pytest.raises(DesignError, match=reason):
            make(kind, given, **options)
    with pytest.raises(TooFewError, match="a design compares two systems at least; there is A"):
        make(DesignKind.LIKERT, [item("", "A", "x")])


SHAPES = [(3, 2, 9), (5, 2, 25), (10, 4, 40), (7, 3, 14), (13, 4, 13)]


@pytest.mark.parametrize(("units", "size", "count"), SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_units_and_positions_differ_by_one_at_most(units, size, count, seed):
    dealt = deal_tuples(units, size, count, np.random.default_rng(seed))
    balance = measure_balance(dealt, units)
    assert len(dealt) == count
    assert all(len(set(each)) == size for each in dealt)
    assert balance["appearances"][1] - balance["appearances"][0] <= (0 if count * size % units == 0 else 1)
    assert balance["in_position"][1] - balance["in_position"][0] <= 1
    assert balance["meetings"][1] - balance["meetings"][0] <= (1 if units <= 13 else 3)


def test_very_many_tuples_are_balanced_in_bounded_time():
    dealt = deal_tuples(12, 5, 2400, np.random.default_rng(0))
    balance = measure_balance(dealt, 12)
    assert balance["appearances"] == (1000, 1000)
    assert balance["in_position"] == (200, 200)
    assert balance["meetings"][1] - balance["meetings"][0] <= 12  # of 364


PERFECT = [(10, 4, 15, 2), (7, 3, 14, 2), (13, 4, 13, 1), (10, 2, 45, 1)]


@pytest.mark.parametrize(("units", "size", "count", "meet"), PERFECT)
def test_where_a_perfect_design_exists_it_is_found(units, size, count, meet):
    """Balanced incomplete block designs; the one of 13 units is a projective plane."""
    assert measure_balance(deal_tuples(units, size, count, np.random.default_rng(0)), units)["meetings"] == (meet, meet)


@pytest.mark.parametrize("size", [1, 5])
def test_a_size_that_cannot_be_is_refused(size):
    with pytest.raises(ValueError, match=f"2 to 4 units, not {size}"):
        deal_tuples(4, size, 3, np.random.default_rng(0))


WINS = {(0, 1): 7, (1, 0): 3, (0, 2): 6, (2, 0): 2, (1, 2): 5, (2, 1): 4, (3, 0): 1, (0, 3): 5, (2, 3): 3, (3, 2): 3}
RANKINGS = [(0, 1, 2, 3)] * 4 + [(1, 0, 3, 2)] * 3 + [(2, 0, 1, 3)] * 2 + [(3, 1, 0, 2)] + [(0, 2, 1, 3)] * 2


BY_PAIRS = [row for at, pair in enumerate(each for each, count in WINS.items() for _ in range(count))
            for row in analysis.split_pairs([1, 2], list(pair), at)]  # fmt: skip
BY_RANKINGS = [
    row for at, order in enumerate(RANKINGS) for row in analysis.split_ranking([1, 2, 3, 4], list(order), at)
]


CHOIXS = [
    (BY_PAIRS, 1e-9, [0.85753, -0.04731, -0.32436, -0.48586]),
    (BY_PAIRS, 0.01, [0.85431, -0.04816, -0.32345, -0.4827]),
    (BY_RANKINGS, 1e-9, [1.26974, 0.59248, -0.5191, -1.34312]),
    (BY_RANKINGS, 0.01, [1.26317, 0.58886, -0.51648, -1.33555]),
]


@pytest.mark.parametrize(("rows", "penalty", "expected"), CHOIXS)
def test_bradley_terry_and_plackett_luce_are_choixs(rows, penalty, expected):
    """Constants from choix 0.4.1: opt_pairwise and opt_rankings with alpha 0 and 0.01."""
    assert analysis.fit_choices(analysis.build_choices(rows, 4), penalty)[0] == pytest.approx(expected, abs=2e-5)


def test_best_and_worst_imply_five_of_six_pairs_and_a_tie_is_half_a_win_each():
    assert len(analysis.split_pairs([2, 1, 3, 2], [0, 1, 2, 3], 0)) == 5
    tie = analysis.split_pairs([1.5, 1.5], [0, 1], 0)
    assert [(chosen, weight) for chosen, _, weight, _ in tie] == [(0, 0.5), (1, 0.5)]


def test_influences_are_what_leaving_an_answer_out_does():
    strengths, influences = analysis.fit_choices(analysis.build_choices(BY_PAIRS, 4))
    without, _ = analysis.fit_choices(analysis.build_choices(BY_PAIRS[1:], 4))
    assert strengths - without == pytest.approx(influences[0], abs=0.02)
    assert influences.sum(axis=0) == pytest.approx(np.zeros(4), abs=0.05)


def test_one_way_errors_are_those_of_cluster_means():
    """With equal clusters the error of a mean is that of the clusters' means."""
    generator = np.random.default_rng(1)
    values = (generator.normal(0, 2, (12, 1)) + generator.normal(0, 1, (12, 5))).ravel()
    raters, systems = np.repeat(np.arange(12), 5), np.zeros(60, dtype=np.intp)
    means, influences = analysis.average_by_system(values, systems, 1)
    interval, _ = analysis.build_estimates(means, influences, raters, np.zeros(60, dtype=np.intp)).contrast(np.ones(1))
    error = values.reshape(12, 5).mean(axis=1).std(ddof=1) / np.sqrt(12)
    assert interval.high - interval.value == pytest.approx(2.200985 * error)  # t of 11 degrees of freedom


def fill(kind, seed=1, size=None):
    key = make_key(kind, size or StudySize(raters=6, per_rater=8, dialogues=12), seed)
    return key, build_option_table(key, SimulatedRaters(key, seed).answer())


def test_magnitudes_are_compared_on_a_logarithmic_scale_with_their_standard():
    key, table = fill(DesignKind.BIASED_MAGNITUDE)
    values, steps = analysis.transform_answers(key, CRITERION, table, "raw")
    assert values == pytest.approx(np.log((table.answer + 1) / (table.standard + 1)))
    assert steps == ["ln((answer + 1) / (standard + 1))"]
    zero = replace(table, answer=np.zeros_like(table.answer))
    assert np.isfinite(analysis.transform_answers(key, CRITERION, zero, "raw")[0]).all()


def test_z_takes_away_level_and_spread_and_says_so():
    key, table = fill(DesignKind.CONTINUOUS)
    stretched = replace(table, answer=table.answer * (1 + table.rater) + 7 * table.rater)
    values, steps = analysis.transform_answers(key, CRITERION, stretched, "z")
    assert values == pytest.approx(analysis.transform_answers(key, CRITERION, table, "z")[0])
    assert steps == ["z per rater and criterion, n - 1"]


@pytest.mark.parametrize("kind", [kind for kind in DesignKind if not kind.is_choice])
def test_a_negative_criterion_turns_the_order_round(kind):
    key, table = fill(kind)
    worse = AskedCriterion(name="dull", direction="negative")
    for place, scoring in enumerate(analysis.analyse_criterion(key, CRITERION, table, "z").scorings):
        turned = analysis.analyse_criterion(key, worse, table, "z").scorings[place]
        assert [each.system for each in turned.systems] == [each.system for each in scoring.systems][::-1]
        assert any("turned" in step or "reversed" in step for step in turned.transforms)


def test_counts_of_best_worst_are_best_less_worst_by_shown():
    key, table = fill(DesignKind.BEST_WORST)
    counted = analysis.analyse_criterion(key, CRITERION, table, "z").scorings[0]
    for each in counted.systems:
        own = table.answer[table.system == table.systems.index(each.system)]
        assert each.score.value == pytest.approx(((own == 1).sum() - (own == 3).sum()) / len(own))
        assert each.shown == len(own)


def test_a_rater_who_says_one_thing_is_left_out_of_z_scores_and_named():
    key, table = fill(DesignKind.LIKERT)
    flat = replace(table, answer=np.where(table.rater == 0, 3.0, table.answer))
    found = analysis.analyse_criterion(key, CRITERION, flat, "z")
    assert found.left_out == ["1 raters who gave one answer to everything"]
    with pytest.raises(TooFewError, match="quality: every rater gave one answer to everything"):
        analysis.analyse_criterion(key, CRITERION, replace(table, answer=np.full_like(table.answer, 3.0)), "z")
