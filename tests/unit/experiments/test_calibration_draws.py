"""Draws of judged turns: what is drawn, where false alarms are counted, and what dialogues of like turns do."""

import numpy as np
import pytest
from calibration_draws import SHIPPED, Outcome, draw_heads, draw_turns, run_judged_draws, tally_outcomes
from turnscore_exporters.calibration.recalibration import RatedHeads
from turnscore_exporters.errors import ExporterError

DIALOGUES, LENGTH = 60, 10
NAMES = [str(number // LENGTH) for number in range(DIALOGUES * LENGTH)]


def judge_turns(seed: int, *, alike: bool) -> RatedHeads:
    """Made-up turns; `alike`, all turns of a dialogue have the same heads and are good or not together."""
    heads, good = draw_heads(len(NAMES), np.random.default_rng(seed))
    if alike:
        first = np.arange(len(NAMES)) // LENGTH * LENGTH
        heads, good = heads[first], good[first]
    return RatedHeads(heads, good, NAMES, [()] * len(NAMES))


def test_a_draw_has_the_turns_asked_for_or_whole_dialogues():
    generator = np.random.default_rng(0)
    alone = draw_turns(NAMES, 95, generator, whole_dialogues=False)
    whole = draw_turns(NAMES, 95, generator, whole_dialogues=True)
    assert (alone.sum(), whole.sum()) == (95, 100)
    assert len({name for name, drawn in zip(NAMES, alone, strict=True) if drawn}) > 30
    assert len({name for name, drawn in zip(NAMES, whole, strict=True) if drawn}) == 10


def test_turns_that_are_alike_break_the_promise_only_where_dialogues_are_drawn_whole():
    judged = judge_turns(1, alike=True)
    alone = run_judged_draws(judged, SHIPPED, 20, 110, seed=1)
    whole = run_judged_draws(judged, SHIPPED, 20, 110, seed=1, whole_dialogues=True)
    assert alone.draws == whole.draws == 20
    assert whole.broken > alone.broken + 3


def test_warnings_count_as_the_formula_says():
    judged = judge_turns(2, alike=False)
    repeating = RatedHeads(
        judged.heads, judged.good, NAMES, [("repeats_itself",) if bad else () for bad in ~judged.good]
    )
    shipped = SHIPPED.model_copy(update={"repeats": {"repeats_itself": 20.0}})
    tally = run_judged_draws(repeating, shipped, 3, 110, seed=2)
    assert tally.recall == 1.0
    assert tally.false_alarms < 0.06


def test_refused_draws_count_nowhere():
    judged = judge_turns(3, alike=False)
    good = judged.good & (np.arange(len(NAMES)) % 4 > 0)
    rated = RatedHeads(judged.heads, good, NAMES, judged.warnings)
    turns = round(59 / good.mean())
    tally = run_judged_draws(rated, SHIPPED, 12, turns, seed=3)
    assert 0 < tally.draws < 12
    with pytest.raises(ExporterError, match=r"every draw was refused, the last one: .* turns are good"):
        run_judged_draws(rated, SHIPPED, 2, 60)


def test_a_tally_counts_the_draws_above_the_rate():
    tally = tally_outcomes([Outcome(0.05, 0.2, True), Outcome(0.06, 0.4, False)], 0.05)
    assert (tally.draws, tally.broken, tally.reweighted) == (2, 1, 1)
    assert (tally.false_alarms, tally.recall) == (pytest.approx(0.055), pytest.approx(0.3))
