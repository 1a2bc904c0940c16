"""The profile: lines are found, belong to stages, and are given as microseconds a turn."""

import sys
import time
from pathlib import Path
from types import FrameType

import pytest
from turnscore_bench.profile.measuring import Profile, Way
from turnscore_bench.profile.page import line_table, stage_table
from turnscore_bench.profile.profiled_service import Sampled
from turnscore_bench.profile.sampler import ThreadSampler
from turnscore_bench.profile.stages import LOOP, STAGES, describe, stage_of


@pytest.mark.skipif(sys.platform != "linux", reason="the timer is Linux's")
def test_the_sampler_counts_what_the_thread_does_and_not_what_it_waits_for():
    sampler = ThreadSampler(lambda frame: frame.f_code.co_name)
    sampler.start()
    used = busy_until_counted(sampler, 20)
    time.sleep(0.2)
    sampler.stop()
    assert used - 0.01 <= sampler.cpu_seconds < used + 0.1
    assert sampler.counts["busy_until_counted"] >= 0.8 * sampler.counts.total() >= 0.8 * 20


def busy_until_counted(sampler: ThreadSampler, times: int) -> float:
    """The thread's CPU seconds. A busy machine's kernel counts late, so the number of samples ends it, not the time."""
    begun = time.thread_time()
    while sampler.counts.total() < times and time.thread_time() < begun + 10:
        for _ in range(100_000):
            pass
    return time.thread_time() - begun


@pytest.mark.parametrize(
    ("place", "stage"),
    [
        (("/x/uvicorn/protocols/http/httptools_impl.py", "send"), "HTTP: connections and parsing"),
        (("/x/turnscore_service/api/http/app.py", "_serve"), "API: head, key, body"),
        (("/x/turnscore_service/scorers/engagement.py", "encode"), "tokenizing"),
        (("/x/turnscore_service/scorers/engagement.py", "last_user_run"), None),
    ],
)
def test_a_line_belongs_to_its_functions_stage(place: tuple[str, str], stage: str | None):
    assert stage_of(*place) == stage
    assert stage is None or stage in STAGES


def test_a_line_of_nobodys_stage_is_the_event_loops():
    here: FrameType = sys._getframe()
    assert describe(here)[0] == LOOP


def test_the_tables_have_microseconds_a_turn(tmp_path: Path):
    line = tmp_path / "line.py"
    line.write_text("a = b | c\n")
    samples = [(STAGES[1], str(line), 1, 30), (LOOP, "/elsewhere/loop.py", 7, 10)]
    sampled = Sampled(cpu_seconds=0.05, loop_seconds=0.04, samples=samples)
    profile = Profile(way=Way(label="HTTP"), turns=100, sampled=sampled)
    stages = stage_table([profile])
    assert f"| {STAGES[1]} | 300 |" in stages
    assert f"| {LOOP} | 100 |" in stages
    assert "| **the event loop's thread** | 400 |" in stages
    assert "| **other threads** | 100 |" in stages
    assert "`a = b \\| c` | 300.0 |" in line_table(profile, tmp_path)
