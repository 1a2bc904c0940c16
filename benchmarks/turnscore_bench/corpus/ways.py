"""The ways to score a file of dialogues with engagement, each for a process of its own. A way returns its turns.

What a way loads before it begins is not counted: `Ready` is called in between.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from turnscore_client import TurnScoreClient
from turnscore_core.engine import Engine
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.history import History
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_corpus.engines.work import EngineChoice
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.files import find_files
from turnscore_corpus.run import CorpusJob, run_job
from turnscore_load.address import free_port
from turnscore_models import read_bundle

from turnscore_bench.corpus.dialogues import read_dialogues
from turnscore_bench.harness.processes import Server
from turnscore_bench.servers.bare_runtime import BareRuntime
from turnscore_bench.servers.ideal_batches import Plan

Ready = Callable[[], None]
"""Called when the models are loaded."""
CALL_DIALOGUES = 1000
"""Dialogues of one call of the engine: a block of a run."""
CALLERS = 16
"""Dialogues that the client asks at once."""
_PLAN = Plan(max_tokens=1024, runs=1, threads=1)


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
        turns = 0
        for start in range(0, len(dialogues), CALL_DIALOGUES):
            results = loaded.score(dialogues[start : start + CALL_DIALOGUES])
            turns += sum(len(each.turns) for each in results)
    return turns


def local(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """`turnscore corpus score --workers 1`: reads JSON lines, scores, writes tables."""
    loaded = Engine([bundle])
    ready()
    return int(run_job(_job(source, output, bundle, open_engine=lambda: loaded))["turns"])


def processes(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """`turnscore corpus score` as it is by default: a process for each CPU."""
    ready()
    return int(run_job(_job(source, output, bundle, workers=usable_cpus()))["turns"])


def on_ray(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """`turnscore corpus score --engine ray`, with a worker for each CPU; starts and ends Ray."""
    from turnscore_corpus.engines.ray_engine import run_on_ray
    from turnscore_corpus.engines.work import RayChoice

    ready()
    return int(run_job(_job(source, output, bundle, run_elsewhere=partial(run_on_ray, RayChoice())))["turns"])


def map_batches(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """What one would write first on Ray Data: rows of texts, `map_batches`, the tokenizer, the same graph, Parquet."""
    from turnscore_bench.corpus.plain_ray import score_plainly

    ready()
    return score_plainly(source, output, bundle)


def door(source: Path, output: Path, bundle: Path, ready: Ready) -> int:
    """A service on this machine, asked dialogue by dialogue by our client, some at once."""
    port = free_port()
    settings = {
        "TURNSCORE_MODELS": f"{bundle}/",
        "TURNSCORE_HTTP__HOST": "127.0.0.1",
        "TURNSCORE_HTTP__PORT": str(port),
        "TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0",
        "TURNSCORE_GRPC__PORT": str(free_port()),
    }
    server = Server([str(Path(sys.executable).with_name("turnscore")), "serve"], output, settings, port)
    try:
        server.wait_until_ready("/readyz")
        dialogues = read_dialogues(source)
        before = server.cpu_seconds()
        ready()
        address = f"http://127.0.0.1:{port}"
        with TurnScoreClient(address, timeout_seconds=600) as client, ThreadPoolExecutor(CALLERS) as pool:
            replies = pool.map(lambda each: len(client.score_dialogue(each.turns).turns), dialogues)
            turns = sum(replies)
        (output / "server.json").write_text(json.dumps({"cpu_seconds": server.cpu_seconds() - before}))
        return turns
    finally:
        server.stop()


WAYS: Mapping[str, tuple[str, Callable[[Path, Path, Path, Ready], int]]] = {
    "bare": ("bare runtime, arrays ready, 1 thread", bare),
    "engine": ("`Engine.score`, 1 thread", engine),
    "local": ("`turnscore corpus score`, 1 process", local),
    "processes": ("`turnscore corpus score`, a process for each CPU", processes),
    "ray": ("`turnscore corpus score --engine ray`", on_ray),
    "map_batches": ("plain `map_batches`, the same graph", map_batches),
    "door": ("HTTP door, our client, a dialogue a request", door),
}


def _job(source: Path, output: Path, bundle: Path, **more: Any) -> CorpusJob:
    return CorpusJob(
        files=find_files([str(source)]),
        output=str(output),
        columns=Columns(),
        choice=EngineChoice(models=(f"{bundle}{os.sep}",)),
        **more,
    )
