"""Steadiness: a leak is told from noise."""

import random
from collections.abc import Callable

import pytest
from turnscore_load.sampling import Sample
from turnscore_load.steadiness import Growth, growths, soak_windows

SECONDS = 900
MIB = 1024 * 1024


def run(
    rss_mib: Callable[[float], float] = lambda _: 500,
    handles: Callable[[float], float] = lambda _: 40,
    threads: Callable[[float], float] = lambda _: 20,
) -> list[Growth]:
    samples = [
        Sample(
            seconds=second,
            rss_bytes=int(rss_mib(second) * MIB),
            handles=round(handles(second)),
            threads=round(threads(second)),
            cpu_seconds=0.0,
            machine_cpu_seconds=0.0,
        )
        for second in range(SECONDS)
    ]
    return growths(samples, *soak_windows(SECONDS))


def broken(found: list[Growth]) -> list[str]:
    return [growth.figure.name for growth in found if not growth.is_kept]


def test_nothing_grows():
    assert broken(run()) == []


def test_noise_around_a_level_is_not_growth():
    chance = random.Random(1)
    found = run(lambda _: chance.gauss(500, 20), lambda _: chance.gauss(40, 3), lambda _: chance.choice((20, 20, 21)))
    assert broken(found) == []


def test_growth_within_the_first_two_minutes_is_not_counted():
    assert broken(run(lambda second: 300 + min(second, 120) * 2, handles=lambda second: min(second, 110))) == []


@pytest.mark.parametrize(
    ("name", "grown"),
    [
        ("memory", {"rss_mib": lambda second: 500 + 0.02 * second}),
        ("memory", {"rss_mib": lambda second: 500 if second < 700 else 515}),
        ("file handles", {"handles": lambda second: 40 + second / 200}),
        ("threads", {"threads": lambda second: 20 if second < 500 else 21}),
    ],
)
def test_growth_after_the_first_two_minutes_is_told(name: str, grown: dict):
    assert broken(run(**grown)) == [name]


def test_a_leak_is_told_through_noise():
    chance = random.Random(2)
    assert broken(run(lambda second: chance.gauss(500 + second / 12, 10))) == ["memory"]


def test_what_became_less_is_kept():
    assert broken(run(lambda second: 500 - second / 10)) == []


def test_the_verdict_names_both_windows_and_what_is_allowed():
    [memory, *_] = run(lambda second: 500 if second < 700 else 600)
    assert str(memory) == "memory: 500.0 -> 600.0 MiB, allowed 10.0 MiB more"


def test_a_window_without_samples_is_refused():
    with pytest.raises(ValueError, match="too few"):
        growths(
            [Sample(seconds=1, rss_bytes=1, handles=1, threads=1, cpu_seconds=0, machine_cpu_seconds=0)],
            (0, 10),
            (20, 30),
        )


def test_the_windows_of_a_quarter_of_an_hour():
    assert soak_windows(900) == ((120, 276), (744, 900))


def test_a_short_soak_warms_up_for_a_third():
    assert soak_windows(60) == ((20, 28), (52, 60))
