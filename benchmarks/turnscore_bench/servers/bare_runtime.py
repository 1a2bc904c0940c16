"""The bare runtime, in a process of its own: ONNX Runtime on arrays that are ready, nothing else is timed.

    python -m turnscore_bench.servers.bare_runtime GRAPH CPUS

Reads orders from its standard input, a line of JSON each, and answers each with a line of JSON.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from turnscore_bench.servers.ideal_batches import Plan, Rows, candidate_plans, ideal_batches

Feeds = dict[str, NDArray[np.int64]]


class BareRuntime:
    """The graph in sessions of one thread and of all. Spinning is off as in the service: CPU seconds are work."""

    def __init__(self, graph: str, cpus: int) -> None:
        self._cpus = cpus
        self._sessions = {threads: _session(graph, threads) for threads in {1, cpus}}
        self._best: dict[str, Plan] = {}

    def find_best(self, mix: str, turns: Sequence[Rows]) -> dict[str, Any]:
        """Measures the candidate plans twice, keeps the one of least CPU seconds for that mix of lengths."""
        tried = {plan: self._cpu_seconds(turns, plan) for plan in candidate_plans(self._cpus)}
        best = min(tried, key=lambda plan: tried[plan])
        unrounded = replace(best, width_step=1)
        tried[unrounded] = self._cpu_seconds(turns, unrounded)
        self._best[mix] = min(tried, key=lambda plan: tried[plan])
        costs = [{**asdict(plan), "cpu_ms_per_turn": 1000 * each / len(turns)} for plan, each in tried.items()]
        return {"best": asdict(self._best[mix]), "tried": costs}

    def run_batches(self, turns: Sequence[Rows], plan: Plan) -> dict[str, Any]:
        """All turns in ideal batches: wall and CPU seconds of ONNX Runtime alone, and the values in order."""
        batches = ideal_batches(turns, plan)
        feeds = [_feeds([turns[place] for place in batch], plan) for batch in batches]
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

    def run_singly(self, turns: Sequence[Rows]) -> dict[str, Any]:
        """Each turn as a batch of one: median milliseconds with the number of threads that is faster."""
        feeds = [_feeds([turn], Plan(max_tokens=1, runs=1, threads=1)) for turn in turns]
        return {"p50_ms": min(_median_ms(session, feeds) for session in self._sessions.values())}

    def _cpu_seconds(self, turns: Sequence[Rows], plan: Plan) -> float:
        return min(float(self.run_batches(turns, plan)["cpu_seconds"]) for _ in range(2))


def _session(graph: str, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, sess_options=options, providers=["CPUExecutionProvider"])


def _feeds(turns: Sequence[Rows], plan: Plan) -> Feeds:
    """Padded arrays; the pairs point at the rows as the scorer's do, a turn without a query at its reply twice."""
    rows = [row for turn in turns for row in turn]
    ids, mask = (np.zeros((len(rows), plan.width(max(map(len, rows)))), dtype=np.int64) for _ in range(2))
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row  # BERT's padding token is 0
        mask[place, : len(row)] = 1
    ends = np.cumsum([len(turn) for turn in turns])
    starts = np.array([0, *ends[:-1]])
    return {"input_ids": ids, "attention_mask": mask, "query_row": starts, "reply_row": ends - 1}


def _median_ms(session: Any, feeds: Sequence[Feeds]) -> float:
    took = []
    for each in feeds:
        started_at = time.perf_counter()
        session.run(["probability"], each)
        took.append(1000 * (time.perf_counter() - started_at))
    return median(took)


def answer_orders(runtime: BareRuntime) -> None:
    """Answers until the standard input ends."""
    jobs: dict[str, Callable[[str, Sequence[Rows]], dict[str, Any]]] = {
        "find_best": runtime.find_best,
        "run_best": runtime.run_best,
        "run_singly": lambda _, turns: runtime.run_singly(turns),
    }
    for line in sys.stdin:
        order = json.loads(line)
        answer = jobs[order["job"]](order["mix"], json.loads(Path(order["turns"]).read_text()))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    answer_orders(BareRuntime(sys.argv[1], int(sys.argv[2])))
