"""The committed scores of the two hundred requests: what a change that means to change no score must leave as they are.

`make generate WHAT=scores` writes them; `tests/contract/test_every_way_in.py` compares them with what every transport
answers.
"""

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from pydantic import BaseModel
from turnscore_models import read_bundle, starter_bundles
from turnscore_service.settings.service import Settings
from turnscore_wire import BatchReply, DialogueReply, RankReply, Score, ScoreReply

from support.every_way import LIMITS, Refusal, every_way, requests
from support.transports import settings_with

FILE = Path(__file__).parents[1] / "contract" / "scores.json"
_VECTOR_FLAGS = ("amx", "avx", "fma", "sse4")
"""By these ONNX Runtime chooses its kernels on x86."""


def table_settings() -> Settings:
    """Every score computed for itself, by one thread."""
    every = ("engagement", "fed", "sentiment_stop")
    runtime = {"device": "cpu", "threads": 1, "concurrent_batches": 1}
    return settings_with(limits=LIMITS, cache={"ttl_seconds": 0}, runtime=runtime, default_scorers=every)


def scores_of(reply: BaseModel) -> list[dict[str, Score]]:
    """Every turn's scores, in the order asked for."""
    if isinstance(reply, ScoreReply):
        return [reply.scores]
    if isinstance(reply, BatchReply):
        return [each.scores if isinstance(each, ScoreReply) else {} for each in reply.results]
    if isinstance(reply, RankReply):
        return [each.scores for each in sorted(reply.candidates, key=lambda each: each.index)]
    assert isinstance(reply, DialogueReply)
    return [each.scores for each in reply.turns]


def row_of(answered: BaseModel | Refusal) -> list[Any]:
    """One request's row: what it was refused with, or for every turn its scores as [value, percentile, details]."""
    if isinstance(answered, tuple):
        return list(answered)
    return [
        {name: [score.value, score.percentile, score.details] for name, score in turn.items()}
        for turn in scores_of(answered)
    ]


def instruction_set() -> list[str]:
    """What decides the last digits: the architecture, the runtime's version and the vector units of this machine."""
    flags: set[str] = set()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="ascii", errors="replace").splitlines()
        line = next((each for each in lines if each.startswith("flags")), "")
        flags = {each for each in line.split() if each.startswith(_VECTOR_FLAGS)}
    return [platform.machine(), f"onnxruntime {onnxruntime.__version__}", *sorted(flags)]


def tolerances() -> dict[str, float]:
    """How far a value may be off on another instruction set, by scorer: as each starter bundle states it."""
    manifests = [read_bundle(folder).manifest for folder in starter_bundles()]
    return {each.kind: each.graphs["cpu-int8"].parity_tolerance for each in manifests}


def is_alike(row: Sequence[Any], wanted: Sequence[Any], allowed: Mapping[str, float]) -> bool:
    """Whether two rows are the same: in every bit, or by what is `allowed` of each scorer, if anything."""
    if not allowed or not all(isinstance(turn, dict) for turn in (*row, *wanted)):
        return list(row) == list(wanted)
    return len(row) == len(wanted) and all(
        here.keys() == there.keys() and all(abs(here[name][0] - there[name][0]) <= allowed[name] for name in here)
        for here, there in zip(row, wanted, strict=True)
    )


def read_table() -> Mapping[str, Any]:
    """The committed table: `instruction_set` and `scores`."""
    table: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return table


def write_table(file: Path = FILE) -> None:
    """Asks this machine's service over HTTP, and writes a line a request: floats with every digit."""
    with every_way(table_settings()) as ways:
        rows = {each.name: row_of(ways.ways["http"](each)) for each in requests()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    file.write_text(
        f'{{"instruction_set": {json.dumps(instruction_set())},\n"scores": {{\n{lines}\n}}}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    write_table(*map(Path, sys.argv[1:]))
