"""Power: simulated from a pilot it is the textbook's where that holds, and honest without a difference."""

import json

import numpy as np
import pytest
from support.files import find_data, invoke, write_lines
from turnscore_assessment.analysis.power import Pilot, PowerOptions, plan_study, read_pilot, simulate_power
from turnscore_assessment.commands.main import app
from turnscore_assessment.comparison.difference import find_power
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.ratings.rating_file import read_published, read_ratings

STUDY = {"study": "s", "criteria": [{"name": "fun"}, {"name": "dull", "direction": "negative"}]}


def make_pilot(workers=60, *, paired=True, taste=10, noise=10, each=1):
    """Ratings of two systems: B is 5 better; `taste` is a worker's own difference, `noise` a dialogue's."""
    generator = np.random.default_rng(1)
    sides = [
        [mean + liking + generator.normal(0, noise, each) for liking in generator.normal(0, taste, workers)]
        for mean in (50, 55)
    ]
    return Pilot(a=sides[0], b=sides[1], is_paired=paired, transforms=["none"], notes=[])


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("workers", [20, 80])
def test_of_normal_ratings_the_power_is_the_t_tests(paired, workers):
    pilot = make_pilot(300, paired=paired)
    found = simulate_power(pilot, workers, 6.0, PowerOptions(simulations=4000))
    expected = find_power(6.0, pilot.spread, workers, paired=paired)
    assert found.power == pytest.approx(expected, abs=4 * found.error + 0.01)
    assert found.error == pytest.approx(np.sqrt(found.power * (1 - found.power) / 4000))


@pytest.mark.parametrize("paired", [True, False])
def test_without_a_difference_studies_see_one_at_the_level(paired):
    found = simulate_power(make_pilot(paired=paired), 40, 0.0, PowerOptions(simulations=4000))
    assert found.power + found.wrong == pytest.approx(0.05, abs=0.015)


def test_the_workers_planned_reach_the_power_and_fewer_do_not():
    pilot = make_pilot()
    plan = plan_study(pilot, PowerOptions(difference=6.0))
    assert plan.needed is not None
    assert (plan.needed_low or 0) <= plan.needed <= (plan.needed_high or 0)
    other_seed = PowerOptions(seed=9)
    assert simulate_power(pilot, plan.needed, 6.0, other_seed).power == pytest.approx(0.8, abs=0.04)
    assert simulate_power(pilot, round(0.6 * plan.needed), 6.0, other_seed).power < 0.72
    assert plan.false_alarms.power + plan.false_alarms.wrong < 0.07


def row(worker, system, fun, *, hit="h", degraded=False):
    made = {"worker": worker, "hit": hit, "system": system, "ratings": {"fun": fun, "dull": 100 - fun}}
    return {**made, "degraded": True} if degraded else made


def write_pilot(path, workers=8, *, split=False):
    generator = np.random.default_rng(2)
    rows = []
    for worker in range(workers):
        systems = ("A", "B") if not split else ("A",) if worker % 2 else ("B",)
        rows += [row(f"w{worker}", name, int(generator.integers(40, 60)) + 10 * (name == "A")) for name in systems]
        rows += [row(f"w{worker}", "C", int(generator.integers(0, 99)), hit=str(n)) for n in range(2)]
    return write_lines(path, STUDY, *rows)


def test_what_a_pilot_lacks_is_named(tmp_path):
    ratings = read_ratings(write_pilot(tmp_path / "r.jsonl"))
    with pytest.raises(TooFewError, match="0 workers rated 2 dialogues of each of 'A' and 'B', 0 and 0 only one"):
        read_pilot(ratings, "A", "B", dialogues=3)
    with pytest.raises(TooFewError, match="4 workers rated each of 'A' and 'B'"):
        read_pilot(read_ratings(write_pilot(tmp_path / "s.jsonl", 4)), "A", "B")
    with pytest.raises(AssessmentError, match="systems: 'Z' is no system; the study has A, B, C"):
        read_pilot(ratings, "A", "Z")
    with pytest.raises(AssessmentError, match="criterion: 'wit' is none of the study's: overall, fun, dull"):
        read_pilot(ratings, "A", "B", criterion="wit")


def test_the_command_says_what_is_needed_and_how_it_knows(tmp_path):
    pilot, output = write_pilot(tmp_path / "r.jsonl"), tmp_path / "out" / "plan.json"
    options = ["--systems", "A,B", "--transform", "raw", "--simulations", "500", "--output", str(output)]
    done = invoke(app, ["power", str(pilot), *options])
    plan = json.loads(output.read_text())
    assert f"{plan['needed']} workers (" in done.output
    assert "the difference is the pilot's own, known to " in done.output
    assert "fewer than 20 workers: how much workers differ is hardly known" in done.output
    assert "Monte-Carlo error" in done.output
    assert invoke(app, ["power", str(pilot), *options]).output == done.output
    for systems, code in (("A", 2), ("A,,", 2), ("A,A", 1)):
        invoke(app, ["power", str(pilot), "--systems", systems], code=code)


def test_the_published_study_is_a_pilot():
    """Free run 1: A and B differ by .126 in the 56 workers who rated both; docs/studies.md has what that needs."""
    files = find_data("human_assessment/free_run1_pass.jsonl.gz", "human_assessment/free_run1_fail.jsonl.gz")
    pilot = read_pilot(read_published(files, "free1"), "A", "B")
    assert (len(pilot.a), round(pilot.difference, 3), round(pilot.spread, 3)) == (56, 0.126, 0.741)
    assert pilot.notes == ["75 of 248 workers do not pass the quality control"]
    plan = plan_study(pilot, PowerOptions(difference=0.2, simulations=400))
    assert plan.needed == pytest.approx(116, abs=18)
