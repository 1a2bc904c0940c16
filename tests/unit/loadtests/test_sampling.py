"""What the samples say of a real process, and a leak told from noise."""

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from turnscore_load.sampling import Growth, ProcessSample, Sampler, growths, soak_windows, write_csv

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


SECONDS = 900
MIB = 1024 * 1024


def run(
    rss_mib: Callable[[float], float] = lambda _: 500,
    handles: Callable[[float], float] = lambda _: 40,
    threads: Callable[[float], float] = lambda _: 20,
) -> list[Growth]:
    samples = [
        ProcessSample(
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
