"""What the samples say of a real process, and a leak told from noise."""

from collections.abc import Callable

import pytest
from turnscore_load.sampling import Growth, ProcessSample, growths, soak_windows

SECONDS = 900


def run(
    rss_mib: Callable[[float], float] = lambda _: 500,
    handles: Callable[[float], float] = lambda _: 40,
    threads: Callable[[float], float] = lambda _: 20,
) -> list[Growth]:
    samples = [
        ProcessSample(
            seconds=second,
            rss_bytes=int(rss_mib(second) * 1024**2),
            handles=round(handles(second)),
            threads=round(threads(second)),
            cpu_seconds=0.0,
            machine_cpu_seconds=0.0,
        )
        for second in range(SECONDS)
    ]
    return growths(samples, *soak_windows(SECONDS))


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
    assert [growth.figure.name for growth in run(**grown) if not growth.is_kept] == [name]
