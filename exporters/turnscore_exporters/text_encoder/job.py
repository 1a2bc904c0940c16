"""One run of `turnscore-export encoder`: finds the real turns to measure on, and exports."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from turnscore_assessment.data.dialogues import read_dialogues
from turnscore_models import Bundle

from turnscore_exporters.bundles.encoder import GraphChoice
from turnscore_exporters.data.reference_turns import ReferenceTurns, pair_turns, read_reference_turns
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.text_encoder.bundle import TextEncoderExport, export_text_encoder
from turnscore_exporters.text_encoder.model import Pooling


@dataclass(frozen=True, kw_only=True)
class TextEncoderJob:
    """The command's options."""

    encoder: str
    version: str
    output: Path
    data: Path | None
    dialogues: Sequence[Path]
    turns: int
    graphs: GraphChoice
    pooling: str | None
    token_limit: int
    licence: str
    threads: int


def run_text_encoder_job(job: TextEncoderJob) -> Bundle:
    """The bundle. Raises ExporterError as `export_text_encoder`, and for options that do not go together."""
    if job.pooling is not None and job.pooling not in set(Pooling):
        raise ExporterError(f"--pooling is {job.pooling!r}, expected one of {', '.join(Pooling)}")
    if job.threads:
        torch.set_num_threads(job.threads)
    return export_text_encoder(
        TextEncoderExport(
            encoder=job.encoder,
            version=job.version,
            output=job.output,
            reference=_read_turns(job),
            graphs=job.graphs,
            pooling=None if job.pooling is None else Pooling(job.pooling),
            token_limit=job.token_limit,
            licence=job.licence,
        )
    )


def _read_turns(job: TextEncoderJob) -> ReferenceTurns:
    if (job.data is None) == (not job.dialogues):
        raise ExporterError("give either --data or --dialogues: parity and percentiles are measured on real turns")
    if job.data is not None:
        return read_reference_turns(job.data, job.turns)
    found = {pair for path in job.dialogues for each in read_dialogues(path) for pair in pair_turns(each, None)}
    unique = sorted(found)
    drawn = random.Random(0).sample(unique, min(job.turns, len(unique)))  # noqa: S311
    return ReferenceTurns(drawn, " and ".join(path.name for path in job.dialogues))
