"""An engine without models, and small corpora, so that runs of many blocks take milliseconds."""

import gzip
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import turnscore_wire as wire
from pyarrow import parquet
from turnscore_core.errors import FailedScoringError
from turnscore_corpus.command import CorpusJob, run_job
from turnscore_corpus.inputs.dialogues import read_dialogues
from turnscore_corpus.inputs.files import Columns, find_files
from turnscore_corpus.inputs.formats import RecordReader
from turnscore_corpus.inputs.plan import make_plan
from turnscore_corpus.outputs.folder import TABLES
from turnscore_models.manifest import BundleError


class WordEngine:
    """Scores a turn by its words: `value` is how many, of a hundred. A turn `broken` gets an error."""

    def __init__(self, scorers=("words",), version="1.0.0"):
        described = {"graph": "cpu-int8", "max_text_tokens": 1, "max_turn_tokens": 1}
        self.models = [
            wire.ModelDescription(scorer=name, model=f"{name}:{version}", digest=f"{name}{version}" * 4, **described)
            for name in scorers
        ]
        self.limits, self.code_versions = wire.Limits(), {}
        self.turns_computed = 0

    def close(self):
        pass

    def answer(self, requests):
        return [self._answer(each.turns) for each in requests]

    def _answer(self, said):
        if any(turn.text == "refused" for turn in said):
            error = FailedScoringError("the engine refuses it", field="turns").detail()
            return wire.ErrorReply(error=error, request_id="")
        spoken = [(place, turn.text) for place, turn in enumerate(said) if turn.speaker == "system"]
        self.turns_computed += len({text for _, text in spoken})
        turns = []
        for place, text in spoken:
            scores = {each.scorer: self._score_of(each.model, text) for each in self.models}
            errors = {name: wire.ErrorDetail(code=wire.ErrorCode.INTERNAL, message="no number") for name in scores}
            scores, errors = ({}, errors) if text == "broken" else (scores, {})
            turns.append(wire.DialogueTurnScores(index=place, scores=scores, errors=errors))
        of_all = {each.scorer: [turn.scores[each.scorer] for turn in turns if turn.scores] for each in self.models}
        aggregates = {name: wire.DialogueAggregate.of(scores) for name, scores in of_all.items() if scores}
        timing = wire.Timing(total=0, tokenize=0, queue=0, inference=0, cache=0)
        return wire.DialogueReply(request_id="", turns=turns, dialogue=aggregates, timing_ms=timing)

    def _score_of(self, model, text):
        count = len(text.split())
        return wire.Score(
            value=count / 100, percentile=float(min(count, 100)), details={"words": float(count)},
            model=model, tokens=wire.TokenCount(used=count, dropped=0), cached=False,
            label="low" if count < 2 else "fair", warnings=["response_cut"] if count > 50 else [],
        )  # fmt: skip


class MortalEngine(WordEngine):
    """Ends its process in the middle of a block, so many times; a folder remembers them."""

    def __init__(self, memory, times=1):
        super().__init__()
        self.memory, self.times = memory, times

    def answer(self, requests):
        if holds(requests, "13 ") and len(list(self.memory.iterdir())) < self.times:
            (self.memory / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().answer(requests)


def holds(requests, beginning):
    """Whether the first turn of one of the dialogues begins so."""
    return any(each.turns[0].text.startswith(beginning) for each in requests)


def turns_of(*texts):
    """The user speaks first."""
    return [{"speaker": "system" if place % 2 else "user", "text": text} for place, text in enumerate(texts)]


def dialogue_rows(count, begin=0):
    """Dialogues of two to five turns, each with words of its own."""
    return [
        {
            "id": f"d{number}",
            "turns": turns_of(*(f"{number} " + "word " * (number % 7 + turn) for turn in range(2 + number % 4))),
            "bot": "ab"[number % 2],
            "at": f"2026-11-{1 + number % 28:02d}T10:00:00",
        }
        for number in range(begin, begin + count)
    ]


def write_lines(path, rows):
    """JSON lines, packed as the ending says; a row that is text or bytes is written as it is."""
    lines = [
        each if isinstance(each, bytes) else (each if isinstance(each, str) else json.dumps(each)).encode()
        for each in rows
    ]
    content = b"".join(line + b"\n" for line in lines)
    packed = {".gz": gzip.compress, ".zst": lambda raw: pa.compress(raw, codec="zstd", asbytes=True)}
    path.write_bytes(packed.get(path.suffix, bytes)(content))
    return path


def plan_of(place, block_dialogues=4, **columns):
    return make_plan(find_files([str(place)]), Columns(**columns), block_dialogues)


def content_of(output):
    """The rows of all tables, in the order of the blocks; texts that hold the folder's own place are none."""
    return {
        table: [
            row
            for file in sorted((output / table).glob("[!.]*.parquet"))
            for row in parquet.read_table(file).to_pylist()
        ]
        for table in TABLES
    }


def read_all(made):
    reader = RecordReader()
    return [
        each
        for block in made.blocks
        for each in read_dialogues(
            reader.read(block.file, block.columns, block.start, block.rows, block.offset), block.columns, wire.Limits()
        )
    ]


BLOCK_DIALOGUES = 4
_BLOCK_SECONDS = 0.3


class UnhurriedEngine(WordEngine):
    """Takes a moment for each block."""

    def answer(self, requests):
        time.sleep(_BLOCK_SECONDS)
        return super().answer(requests)


class OpenableHere:
    """Opens engines in the process that made it, and in no other."""

    def __init__(self):
        self.home = os.getpid()

    def __call__(self):
        if os.getpid() != self.home:
            raise BundleError("no such bundle")
        return WordEngine()


def score_on_ray(source, output, open_engine, **choice):
    """Scores the file as `--engine ray` would; `choice` is RayChoice's."""
    from turnscore_corpus.engines.ray_engine import run_on_ray
    from turnscore_corpus.engines.work import RayChoice

    return run_job(job_of(source, output, open_engine, run_elsewhere=partial(run_on_ray, RayChoice(**choice))))


def job_of(source, output, open_engine=WordEngine, **more):
    """The run of one file in small blocks; in this process where `run_elsewhere` does not do it elsewhere."""
    given = {"columns": Columns(), "block_dialogues": BLOCK_DIALOGUES, **more}
    return CorpusJob(files=find_files([str(source)]), output=str(output), open_engine=open_engine, **given)


PATIENCE_SECONDS = 1200  # for which a node of Ray may take to start where other programs compute; chosen


def be_patient_with_nodes():
    """Ray ends a start when a node's agents take more than 30 seconds, which they do where other programs compute."""
    from ray._private import services

    ask = services.get_node

    def wait(*asked, **options):
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return ask(*asked, **options)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)  # polling a cluster: there is nothing to wait on

    os.environ["RAY_agent_register_timeout_ms"] = str(1000 * PATIENCE_SECONDS)  # noqa: SIM112 - Ray's names
    os.environ["RAY_worker_register_timeout_seconds"] = str(PATIENCE_SECONDS)  # noqa: SIM112
    services.get_node = wait


if __name__ == "__main__":
    be_patient_with_nodes()
    score_on_ray(Path(sys.argv[1]), Path(sys.argv[2]), UnhurriedEngine, workers=2)
