"""One run of `turnscore export encoder`: finds the real turns to measure on, and exports."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from turnscore_models import Bundle

from turnscore_exporters.bundles.encoder import GraphChoice
from turnscore_exporters.data.reference_turns import choose_reference_turns
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
    """Exports the bundle. Raises ExporterError as `export_text_encoder` does, and for contradicting options."""
    if job.pooling is not None and job.pooling not in set(Pooling):
        raise ExporterError(f"--pooling is {job.pooling!r}, expected one of {', '.join(Pooling)}")
    if job.threads:
        torch.set_num_threads(job.threads)
    return export_text_encoder(
        TextEncoderExport(
            encoder=job.encoder,
            version=job.version,
            output=job.output,
            reference=choose_reference_turns(job.data, job.dialogues, job.turns),
            graphs=job.graphs,
            pooling=None if job.pooling is None else Pooling(job.pooling),
            token_limit=job.token_limit,
            licence=job.licence,
        )
    )
