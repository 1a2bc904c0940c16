"""The ways to score a file of dialogues with engagement, each in a process of its own.

    python -m turnscore_load.corpus_ways WAY INPUT OUTPUT BUNDLE

prints what it took. What a way loads before it begins is not counted: `Ready` is called in between.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from turnscore_client import TurnScoreClient
from turnscore_core.dialogues import Dialogue
from turnscore_core.engine import Engine
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.history import History
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_corpus.engines.work import EngineChoice
from turnscore_corpus.inputs.files import Columns, find_files
from turnscore_corpus.run import CorpusJob, run_job
from turnscore_models import read_bundle
from turnscore_wire import Turn

from turnscore_load.bare_runtime import BareRuntime, BatchPlan
from turnscore_load.processes import started
from turnscore_load.services import service_process
from turnscore_load.traffic import Traffic, TrafficSettings

Ready = Callable[[], None]  # called when the models are loaded
CALL_DIALOGUES = 1000  # of one call of the engine: a block of a run
CALLERS = 16  # dialogues that the client asks at once
_PLAN = BatchPlan(max_tokens=1024, runs=1, threads=1)
_IN_OTHERS = ("processes", "ray")  # the work is done in other processes: their parent counts them


def write_dialogues(path: Path, turns: int) -> int:
    """Writes whole dialogues of at least so many system turns together, a line each; how many system turns there are.

    The same number writes the same file. One that is there is taken as it is.
    """
    counted = path.with_suffix(".turns")
    if not counted.exists():
        written = 0
        with path.open("w", encoding="utf-8") as file:
            for number, said in enumerate(_dialogues()):
                if written >= turns:
                    break
                file.write(json.dumps({"id": str(number), "turns": said}) + "\n")
                written += len(said) // 2
        counted.write_text(str(written))
    return int(counted.read_text())


def _dialogues() -> Iterator[list[dict[str, str]]]:
    """User and system in turn."""
    traffic = Traffic(TrafficSettings())
    said: list[dict[str, str]] = []
    while True:
        item = traffic.next_ask().item
        if len(item["context"]) == 1 and said:
            yield said
        said = [*item["context"], {"speaker": "system", "text": item["response"]}]


def read_dialogues(path: Path) -> list[Dialogue]:
    """As the engine takes them."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [Dialogue(row["id"], [Turn(**turn) for turn in row["turns"]]) for row in rows]


def bare(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """ONNX Runtime on padded arrays that are ready, sorted by width, in batches of the engine's budget."""
    read = read_bundle(bundle)
    variant = choose_variant(read)
    loaded = load_scorer(read, variant, threads=1)
    rows = []
    for dialogue in read_dialogues(source):
        whole = History(dialogue.turns)
        spoken = [place for place, turn in enumerate(dialogue.turns) if turn.speaker == "system"]
        turns = [loaded.trim(TurnToScore(whole.before(place), dialogue.turns[place].text)) for place in spoken]
        rows += [pack.rows for pack in loaded.scorer.encode(turns)]
    runtime = BareRuntime(str(read.path_of(read.manifest.graphs[variant].file)), 1)
    ready()
    found = runtime.run_batches(rows, _PLAN)
    output.write_text(json.dumps({"cpu_seconds": found["cpu_seconds"], "wall_seconds": found["wall_seconds"]}))
    return len(rows)


def engine(source: Path, _: Path, bundle: Path, ready: Ready) -> int:
    """`Engine.score`, a block's dialogues a call."""
    dialogues = read_dialogues(source)
    with Engine([bundle]) as loaded:
        ready()
        calls = range(0, len(dialogues), CALL_DIALOGUES)
        return sum(
            len(each.turns) for start in calls for each in loaded.score(dialogues[start : start + CALL_DIALOGUES])
        )


def _job(source: Path, output: Path, bundle: Path, **more: Any) -> CorpusJob:
    choice = EngineChoice(models=(f"{bundle}{os.sep}",))
    return CorpusJob(files=find_files([str(source)]), output=str(output), columns=Columns(), choice=choice, **more)


def local(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """One process: reads JSON lines, scores, writes tables."""
    loaded = Engine([bundle])
    ready()
    return int(run_job(_job(source, output, bundle, open_engine=lambda: loaded))["turns"])


def processes(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """As it is by default: a process for each CPU."""
    ready()
    return int(run_job(_job(source, output, bundle, workers=usable_cpus()))["turns"])


def on_ray(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """With a worker for each CPU; starts and ends Ray."""
    from turnscore_corpus.engines.ray_engine import run_on_ray
    from turnscore_corpus.engines.work import RayChoice

    ready()
    return int(run_job(_job(source, output, bundle, run_elsewhere=partial(run_on_ray, RayChoice())))["turns"])


def over_http(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """A service on this machine, asked dialogue by dialogue by our client, some at once."""
    settings = {"TURNSCORE_MODELS": f"{bundle}/", "TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0"}
    serve = Path(sys.executable).with_name("turnscore")
    with started(service_process(serve, output, settings, clean=True)) as server:
        dialogues, before = read_dialogues(source), server.cpu_seconds()
        ready()
        with TurnScoreClient(server.url, timeout_seconds=600) as client, ThreadPoolExecutor(CALLERS) as pool:
            turns = sum(pool.map(lambda each: len(client.score_dialogue(each.turns).turns), dialogues))
        (output / "server.json").write_text(json.dumps({"cpu_seconds": server.cpu_seconds() - before}))
        return turns


WAYS: Mapping[str, tuple[str, Callable[[Path, Path, Path, Ready], int]]] = {
    "bare": ("bare runtime, arrays ready, 1 thread", bare),
    "engine": ("`Engine.score`, 1 thread", engine),
    "local": ("`turnscore corpus score`, 1 process", local),
    "processes": ("`turnscore corpus score`, a process for each CPU", processes),
    "ray": ("`turnscore corpus score --engine ray`", on_ray),
    "http": ("HTTP, our client, a dialogue a request", over_http),
}


def run(way: str, source: Path, output: Path, bundle: Path) -> dict[str, object]:
    """Turns, seconds and CPU seconds since the models were loaded; no CPU seconds where others did the work."""
    began: list[tuple[float, float]] = []
    turns = WAYS[way][1](source, output, bundle, lambda: began.append((time.process_time(), time.perf_counter())))
    [(cpu, wall)] = began
    own, seconds = time.process_time() - cpu, time.perf_counter() - wall
    took: dict[str, float | None] = {"cpu_seconds": None if way in _IN_OTHERS else own, "wall_seconds": seconds}
    if way == "bare":
        took |= json.loads(output.read_text())
    if way == "http":
        took["cpu_seconds"] = own + json.loads((output / "server.json").read_text())["cpu_seconds"]
    return {"turns": turns, **took}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], *map(Path, sys.argv[2:5]))))  # noqa: T201 read by the parent
