"""TurnscoreDrift on windows of dialogues: made-up ones here, by the shipped rules in Prometheus' own engine."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from replay_drift import WindowKind, count_fired, draw_bins, make_series, replay
from turnscore_assessment.drift.sources import BINS, LiveValues
from turnscore_assessment.errors import AssessmentError

RULES = Path(__file__).parents[4] / "deploy" / "observability" / "rules" / "turnscore.yml"
BASELINE = LiveValues(scorer="quality", model="quality:1", bins=[500.0] * BINS, dialogues=500, turns=5000)
USUAL, BROKEN = np.ones((200, BINS), np.int64), np.tile(np.array([BINS] + [0] * (BINS - 1)), (200, 1))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus")
def test_the_alert_fires_in_the_windows_of_a_changed_bot_alone():
    generator, kinds = np.random.default_rng(0), [WindowKind(0.0, 100), WindowKind(1.0, 100), WindowKind(1.0, 99)]

    def lot(numbers: range) -> dict[str, str]:
        windows = [(kind, number) for kind in kinds for number in numbers]
        return dict(
            each
            for kind, number in windows
            for each in make_series(
                f"{kind.name}-{number}", BASELINE, draw_bins(USUAL, BROKEN, kind, generator).tolist(), kind.dialogues
            )
        )

    # No verdict below 100 dialogues.
    assert count_fired(RULES, BASELINE, [lot(range(2)), lot(range(2, 3))], kinds) == [0, 3, 0]


def test_without_promtool_or_dialogues_it_says_so():
    with pytest.raises(AssessmentError, match="there is no none-such"):
        count_fired(RULES, BASELINE, {}, [], promtool="none-such")
    model, generator = ("quality", "quality:1"), np.random.default_rng(0)
    with pytest.raises(AssessmentError, match="200 usual and 200 degraded dialogues are too few"):
        replay(RULES, model, USUAL, BROKEN, windows=1, generator=generator)
