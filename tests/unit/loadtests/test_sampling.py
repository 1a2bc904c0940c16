"""What the samples say of a real process, and a leak told from noise."""

from collections.abc import Callable

import pytest
from turnscore_load.sampling import Growth, ProcessSample, growths, soak_windows

SECONDS = 900


def run(**grown: Callable[[float], float]) -> list[Growth]:
    usual: dict[str, Callable[[float], float]] = {
        "rss_mib": lambda _: 500, "handles": lambda _: 40, "threads": lambda _: 20, **grown,
    }  # fmt: skip
    samples = []
    for second in range(SECONDS):
        rss_mib, handles, threads = (usual[each](second) for each in ("rss_mib", "handles", "threads"))
        sizes = {"rss_bytes": int(rss_mib * 1024**2), "handles": round(handles), "threads": round(threads)}
        samples.append(ProcessSample(seconds=second, **sizes))
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
    assert [growth.name for growth in run(**grown) if not growth.is_kept] == [name]
