"""What `make bench-start` prints, and that its ways are settings."""

import pytest
from turnscore_bench.start.__main__ import WAYS, Start, report
from turnscore_service.settings.service import Settings


@pytest.mark.parametrize(("way", "threads"), [("threads measured", 0), ("one thread, as the chart says", 1)])
def test_each_way_to_start_is_what_its_name_says(way: str, threads: int, monkeypatch: pytest.MonkeyPatch):
    for name, value in WAYS[way].items():
        monkeypatch.setenv(name, value)
    assert Settings().runtime.threads == threads


def test_a_row_has_medians_and_their_spread():
    starts = [Start(live_seconds=live, score_seconds=5.0, cpu_seconds=4.0) for live in (3.0, 1.0, 1.5)]
    *_, row = report({"a way": starts}, busy=0.1).splitlines()
    assert row == "| a way | 1.5 s (1.0 to 3.0) | 5.0 s (5.0 to 5.0) | 4.0 s (4.0 to 4.0) |"
