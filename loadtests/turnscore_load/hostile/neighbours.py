"""Neighbours: one caller with single turns, alone and beside a flood from another address. Measures; judges nothing."""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from turnscore_load.address import LOOPBACK
from turnscore_load.calls import Stage
from turnscore_load.generator import Generator
from turnscore_load.hostile.flooder import batches
from turnscore_load.service_metrics import read_metrics
from turnscore_load.traffic import Traffic, TrafficSettings

NEIGHBOUR = "127.0.0.2"
"""Another address than the flood's, which is 127.0.0.1: all of 127.0.0.0/8 is this machine's on Linux."""
CONNECTIONS = 64
TURNS_PER_SECOND = 4.0
_DEADLINE_MS = 10_000
_SETTLE_SECONDS = 2.0
_JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One neighbour's calls, quiet and beside a flood; the flood's replies by status; seconds of one batch.

    A batch is what the neighbour may find before it: of fresh turns the longest run of the model, of known ones, which
    need none, a whole request of 256 turns, asked alone.
    """

    kind: str
    quiet: Stage
    flooded: Stage
    statuses: Mapping[str, int]
    batch_seconds: float


async def beside_flood(port: int, scorer: str, kind: str, seconds: float) -> Beside:
    """Single turns for so many seconds alone, and as long beside 64 connections of full batches of that kind."""
    traffic = Traffic(TrafficSettings(seed=len(kind), scorers=(scorer,), deadline_ms=_DEADLINE_MS))
    generator = Generator(port, _DEADLINE_MS, NEIGHBOUR)

    async def single_turns() -> Stage:
        requests = [generator.request(traffic.next_ask().item) for _ in range(int(seconds * TURNS_PER_SECOND))]
        return await generator.run_open(requests, TURNS_PER_SECOND)

    await single_turns()
    quiet = await single_turns()
    alone = await asyncio.to_thread(known_batch_seconds, port, scorer) if kind == "known" else 0.0
    before = batch_buckets(port, scorer)
    flooder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnscore_load.hostile.flooder", str(port), LOOPBACK, str(CONNECTIONS)),
        *(str(seconds + 2 * _SETTLE_SECONDS), scorer, kind),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        await asyncio.sleep(_SETTLE_SECONDS)
        flooded = await single_turns()
        printed, _ = await flooder.communicate()
    finally:
        if flooder.returncode is None:
            flooder.kill()
    generator.close()
    after = batch_buckets(port, scorer)
    batch = alone or _quantile({edge: after[edge] - before.get(edge, 0.0) for edge in after}, 1.0)
    return Beside(kind=kind, quiet=quiet, flooded=flooded, statuses=json.loads(printed), batch_seconds=batch)


def known_batch_seconds(port: int, scorer: str) -> float:
    """How long a batch takes of which every turn is known, while nobody else asks anything: the median of five."""
    body = next(batches(scorer, fresh=False))
    took = []
    for _ in range(6):
        began_at = time.monotonic()
        reply = httpx.post(f"http://{LOOPBACK}:{port}/v1/score_batch", content=body, headers=_JSON, timeout=60)
        reply.raise_for_status()
        took.append(time.monotonic() - began_at)
    return statistics.median(took[1:])


def batch_buckets(port: int, scorer: str) -> dict[float, float]:
    """The scorer's batches so far by their seconds: how many took at most so long."""
    return {
        float(sample.labels["le"]): sample.value
        for sample in read_metrics(port)
        if sample.name == "turnscore_inference_seconds_bucket" and sample.labels["scorer"] == scorer
    }


def _quantile(counts: Mapping[float, float], share: float) -> float:
    """The edge below which that share lies."""
    total = max(counts.values(), default=0.0)
    return next((edge for edge, below in sorted(counts.items()) if total and below >= share * total), 0.0)
