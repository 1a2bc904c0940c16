"""One way in this process: `python -m turnscore_bench.corpus.way WAY INPUT OUTPUT BUNDLE`; prints what it took."""

import json
import sys
import time
from pathlib import Path

from turnscore_bench.corpus.ways import WAYS

_IN_OTHERS = ("processes", "ray", "map_batches")
"""Ways whose work is done in other processes: their parent counts them."""


def run(way: str, source: Path, output: Path, bundle: Path) -> dict[str, object]:
    """Turns, seconds and CPU seconds since the models were loaded; no CPU seconds where others did the work."""
    caption, work = WAYS[way]
    began: list[tuple[float, float]] = []
    turns = work(source, output, bundle, lambda: began.append((time.process_time(), time.perf_counter())))
    [(cpu, wall)] = began
    took: dict[str, float | None] = {
        "cpu_seconds": None if way in _IN_OTHERS else time.process_time() - cpu,
        "wall_seconds": time.perf_counter() - wall,
    }
    if way == "bare":
        took |= json.loads(output.read_text())
    if way == "door":
        own = took["cpu_seconds"]
        assert own is not None
        took["cpu_seconds"] = own + json.loads((output / "server.json").read_text())["cpu_seconds"]
    return {"caption": caption, "turns": turns, **took}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], *map(Path, sys.argv[2:5]))))  # noqa: T201 read by the parent
