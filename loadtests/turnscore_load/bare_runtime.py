"""ONNX Runtime on arrays that are ready, in the batches that a server with all turns in hand and no deadline would run.

    python -m turnscore_load.bare_runtime GRAPH CPUS

reads orders from its standard input, a line of JSON each, and answers each with a line of JSON.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turnscore_core.inference.onnx_backend import open_session

Rows = Sequence[Sequence[int]]  # A turn as the model sees it: the query's token ids and the reply's.
Feeds = dict[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """How the bare runtime runs: padded tokens of a batch at most, batches at once, threads for each."""

    max_tokens: int
    runs: int
    threads: int
    width_step: int = 8

    def width(self, longest: int) -> int:
        """The padded width of rows of which the longest has that many tokens."""
        return -(-longest // self.width_step) * self.width_step


def candidate_plans(cpus: int) -> list[BatchPlan]:
    """Among these the best is found by measuring: all CPUs on one batch, or a batch for each."""
    layouts = dict.fromkeys([(1, cpus), (cpus, 1)])
    budgets = (128, 256, 512, 1024, 2048, 4096)
    return [BatchPlan(max_tokens=each, runs=runs, threads=threads) for runs, threads in layouts for each in budgets]


def ideal_batches(turns: Sequence[Rows], plan: BatchPlan) -> list[list[int]]:
    """The places of the turns in each batch: sorted by their longest row, filled to the token budget, widest first.

    Every turn is in exactly one batch; one that is beyond the budget alone is a batch of its own.
    """
    batches: list[list[int]] = []
    longest = [max(map(len, turn)) for turn in turns]
    for place in sorted(range(len(turns)), key=lambda place: longest[place]):
        padded = len(turns[place]) * plan.width(longest[place])
        if batches and (len(batches[-1]) + 1) * padded <= plan.max_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches[::-1]


def pad(turns: Sequence[Rows], width: int) -> Feeds:
    """Padded arrays; the pairs point at the rows as the scorer's do, a turn without a query at its reply twice."""
    rows = [row for turn in turns for row in turn]
    ids, mask = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(2))
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row  # BERT's padding token is 0
        mask[place, : len(row)] = 1
    ends = np.cumsum([len(turn) for turn in turns])
    return {"input_ids": ids, "attention_mask": mask, "query_row": np.array([0, *ends[:-1]]), "reply_row": ends - 1}


class BareRuntime:
    """The graph in sessions of one thread and of all. Spinning is off as in the service: CPU seconds are work."""

    def __init__(self, graph: str, cpus: int) -> None:
        self._cpus = cpus
        self._sessions = {threads: open_session(Path(graph), threads) for threads in {1, cpus}}
        self._best: dict[str, BatchPlan] = {}

    def find_best(self, mix: str, turns: Sequence[Rows]) -> dict[str, Any]:
        """Measures the candidate plans twice, keeps the one of least CPU seconds for that mix of lengths."""
        tried = {plan: self._cpu_seconds(turns, plan) for plan in candidate_plans(self._cpus)}
        unrounded = replace(min(tried, key=lambda plan: tried[plan]), width_step=1)
        tried[unrounded] = self._cpu_seconds(turns, unrounded)
        self._best[mix] = min(tried, key=lambda plan: tried[plan])
        costs = [{**asdict(plan), "cpu_ms_per_turn": 1000 * each / len(turns)} for plan, each in tried.items()]
        return {"best": asdict(self._best[mix]), "tried": costs}

    def run_batches(self, turns: Sequence[Rows], plan: BatchPlan) -> dict[str, Any]:
        """All turns in ideal batches: wall and CPU seconds of ONNX Runtime alone, and the values in order."""
        batches = ideal_batches(turns, plan)
        parts = [[turns[place] for place in batch] for batch in batches]
        feeds = [pad(part, plan.width(max(len(row) for turn in part for row in turn))) for part in parts]
        session = self._sessions[plan.threads]
        with ThreadPoolExecutor(plan.runs) as pool:
            list(pool.map(time.sleep, [0.01] * plan.runs))  # the threads are there before the clock starts
            cpu, started_at = time.process_time(), time.perf_counter()
            found = list(pool.map(lambda each: session.run(["probability"], each)[0], feeds))
            wall, cpu = time.perf_counter() - started_at, time.process_time() - cpu
        values = [0.0] * len(turns)
        for batch, scores in zip(batches, found, strict=True):
            for place, score in zip(batch, scores, strict=True):
                values[place] = float(score)
        return {"wall_seconds": wall, "cpu_seconds": cpu, "values": values}

    def run_best(self, mix: str, turns: Sequence[Rows]) -> dict[str, Any]:
        """`run_batches` by the plan found best for the mix."""
        return self.run_batches(turns, self._best[mix])

    def run_singly(self, _: str, turns: Sequence[Rows]) -> dict[str, Any]:
        """Each turn as a batch of one: median milliseconds with the number of threads that is faster."""
        feeds = [pad([turn], -(-max(map(len, turn)) // 8) * 8) for turn in turns]
        return {"p50_ms": min(_median_ms(session, feeds) for session in self._sessions.values())}

    def _cpu_seconds(self, turns: Sequence[Rows], plan: BatchPlan) -> float:
        return min(float(self.run_batches(turns, plan)["cpu_seconds"]) for _ in range(2))


def _median_ms(session: Any, feeds: Sequence[Feeds]) -> float:
    took = []
    for each in feeds:
        started_at = time.perf_counter()
        session.run(["probability"], each)
        took.append(1000 * (time.perf_counter() - started_at))
    return median(took)


def answer_orders(runtime: BareRuntime) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        job: Callable[..., dict[str, Any]] = getattr(runtime, order["job"])
        sys.stdout.write(json.dumps(job(order["mix"], json.loads(Path(order["turns"]).read_text()))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    answer_orders(BareRuntime(sys.argv[1], int(sys.argv[2])))
