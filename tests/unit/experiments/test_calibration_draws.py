"""Draws of judged turns: what is drawn, where false alarms are counted, and what dialogues of like turns do."""

import numpy as np
import pytest
from calibration_draws import SHIPPED, draw_heads, run_judged_draws
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


def test_turns_that_are_alike_break_the_promise_only_where_dialogues_are_drawn_whole():
    judged = judge_turns(1, alike=True)
    alone = run_judged_draws(judged, SHIPPED, 20, 110, seed=1)
    whole = run_judged_draws(judged, SHIPPED, 20, 110, seed=1, whole_dialogues=True)
    assert alone.draws == whole.draws == 20
    assert whole.broken > alone.broken + 3


def test_refused_draws_count_nowhere():
    judged = judge_turns(3, alike=False)
    good = judged.good & (np.arange(len(NAMES)) % 4 > 0)
    rated = RatedHeads(judged.heads, good, NAMES, judged.warnings)
    turns = round(59 / good.mean())
    tally = run_judged_draws(rated, SHIPPED, 12, turns, seed=3)
    assert 0 < tally.draws < 12
    with pytest.raises(ExporterError, match=r"every draw was refused, the last one: .* turns are good"):
        run_judged_draws(rated, SHIPPED, 2, 60)
