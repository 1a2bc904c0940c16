"""Sampling: what the samples say of a real process."""

import csv
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from turnscore_load.sampling import ProcessesChangedError, Sampler, write_csv
from turnscore_load.soak.plots import plot_samples

_GROWS = """
import sys, threading, time
print("ready", flush=True)
sys.stdin.readline()
kept = bytearray(b"x" * 64 * 1024 * 1024)
files = [open("/dev/null") for _ in range(20)]
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("grown", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def growing() -> Iterator["subprocess.Popen[str]"]:
    """A process that grows when it is told to."""
    command = [sys.executable, "-c", _GROWS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def say(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def wait_for_samples(sampler: Sampler, more: int) -> None:
    wanted = len(sampler.samples) + more
    while len(sampler.samples) < wanted:
        sampler.check()


def test_memory_handles_and_threads_of_a_process_are_seen_to_grow(growing, tmp_path: Path):
    with Sampler([psutil.Process(growing.pid)], 0.01) as sampler:
        wait_for_samples(sampler, 1)
        say(growing)
        assert growing.stdout.readline() == "grown\n"
        wait_for_samples(sampler, 2)
    first, last = sampler.samples[0], sampler.samples[-1]
    assert last.rss_bytes - first.rss_bytes > 60 * 1024 * 1024
    assert (last.handles - first.handles, last.threads - first.threads) == (20, 1)
    assert last.seconds > first.seconds
    write_csv(sampler.samples, tmp_path / "new" / "samples.csv")
    rows = list(csv.DictReader((tmp_path / "new" / "samples.csv").read_text().splitlines()))
    assert [int(row["rss_bytes"]) for row in rows] == [each.rss_bytes for each in sampler.samples]
    plot_samples(sampler.samples, [(0, last.seconds)], tmp_path / "samples.png")
    assert (tmp_path / "samples.png").stat().st_size > 1000


def test_a_process_that_ends_is_told(growing):
    with Sampler([psutil.Process(growing.pid)], 0.01) as sampler:
        wait_for_samples(sampler, 1)
        growing.kill()
        growing.wait()
        with pytest.raises(ProcessesChangedError, match="ended"):
            wait_for_samples(sampler, 1_000_000)


def test_there_must_be_something_to_watch():
    with pytest.raises(ProcessesChangedError):
        Sampler([], 1)
