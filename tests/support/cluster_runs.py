"""Runs on Ray with engines that take their time, so that something can be killed in the middle of one."""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from turnscore_core.engine import Engine
from turnscore_corpus.engines.work import EngineChoice
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.files import find_files
from turnscore_corpus.run import CorpusJob, run_job
from turnscore_models import BundleError

from support.corpora import WordEngine

BLOCK_DIALOGUES = 4
_BLOCK_SECONDS = 0.3


class UnhurriedEngine(WordEngine):
    """Takes a moment for each block."""

    def score(self, dialogues: Any) -> Any:
        time.sleep(_BLOCK_SECONDS)
        return super().score(dialogues)


class OpenableHere:
    """Opens engines in the process that made it, and in no other."""

    def __init__(self) -> None:
        self.home = os.getpid()

    def __call__(self) -> WordEngine:
        if os.getpid() != self.home:
            raise BundleError("no such bundle")
        return WordEngine()


def score_on_ray(source: Path, output: Path, open_engine: Callable[[], Engine], **choice: Any) -> dict[str, float]:
    """Scores the file as `--engine ray` would; `choice` is RayChoice's."""
    from turnscore_corpus.engines.ray_engine import run_on_ray
    from turnscore_corpus.engines.work import RayChoice

    return run_job(job_of(source, output, open_engine, partial(run_on_ray, RayChoice(**choice))))


def job_of(source: Path, output: Path, open_engine: Callable[[], Engine], elsewhere: Any = None) -> CorpusJob:
    """The run of one file in small blocks; in this process where it is not done elsewhere."""
    return CorpusJob(
        files=find_files([str(source)]),
        output=str(output),
        columns=Columns(),
        choice=EngineChoice(),
        block_dialogues=BLOCK_DIALOGUES,
        run_elsewhere=elsewhere,
        open_engine=open_engine,
    )


if __name__ == "__main__":
    from turnscore_load.ray_nodes import be_patient_with_nodes

    be_patient_with_nodes()
    score_on_ray(Path(sys.argv[1]), Path(sys.argv[2]), UnhurriedEngine, workers=2)
