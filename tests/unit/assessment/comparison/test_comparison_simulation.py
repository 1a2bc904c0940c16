"""The simulation of docs/compare.md, made small: it finds who keeps a promise, and who does not."""

import pytest
from scipy import stats
from turnscore_assessment.comparison import simulation
from turnscore_assessment.comparison.simulation import count_calls, count_covered, draw_ratings, draw_skewed
from typer import Typer
from typer.testing import CliRunner

STUDIES = 200
MOST_FALSE = stats.binom.ppf(0.99, STUDIES, 0.05) / STUDIES


@pytest.mark.parametrize("draw", simulation.DRAWS.values(), ids=simulation.DRAWS)
def test_betting_keeps_five_percent_whatever_is_drawn(draw: simulation.Draw) -> None:
    assert count_calls("betting", draw, STUDIES).rate <= MOST_FALSE


def test_the_others_do_not() -> None:
    assert count_calls("asymptotic", draw_ratings, STUDIES).rate <= MOST_FALSE
    assert count_calls("asymptotic", draw_skewed, STUDIES, seed=1).rate > 0.05
    assert count_calls("t-test", draw_ratings, STUDIES).rate > 0.3


def test_a_difference_is_seen_sooner_the_larger_it_is() -> None:
    small, large = (count_calls("betting", draw_ratings, 40, shift) for shift in (10, 20))
    assert small.called == large.called == 40
    assert 25 < large.median_stop < small.median_stop < 160


def test_intervals_cover() -> None:
    covered, alarms = count_covered((25, 40), 200, paired=False)
    assert covered >= 0.89
    assert alarms <= MOST_FALSE


def test_the_command_prints_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "LOOKS", 40)
    program = Typer()
    program.command()(simulation.main)
    done = CliRunner().invoke(program, ["--studies", "10"])
    assert done.exit_code == 0, done.output
    assert "t-test: ratings " in done.output
    assert "100 and 100 pairs: " in done.output
