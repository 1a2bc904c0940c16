"""One FED export, or one verification, as the command asks for it."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import torch
import typer
from turnscore_core.scorers.fed.dialogue_tokens import Join
from turnscore_core.scorers.fed.options import FedBundleOptions, Loss
from turnscore_models import Bundle

from turnscore_exporters.bundles.writer import choose_graphs
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.fed.bundle import (
    MIN_REFERENCE_TURNS,
    REFERENCE_FILE,
    TOLERANCES,
    FedExport,
    export_fed,
    read_reference,
)
from turnscore_exporters.fed.checkpoint import FedCheckpoint, load_checkpoint
from turnscore_exporters.fed.qualities import PUBLISHED_FILE, read_qualities

# A verification does not use the percentiles: these stand in for real turns.
STAND_IN_TURNS = tuple((f"hi, this is number {number}", "ok.") for number in range(MIN_REFERENCE_TURNS))

Value = TypeVar("Value", bound=str)


@dataclass(frozen=True, kw_only=True)
class FedJob:
    """The command's options."""

    checkpoint: str
    version: str
    output: Path | None
    is_verification: bool
    dialogues: Sequence[Path]
    turns: int
    graphs: Sequence[str] | None
    qualities: Path | None
    join: str
    loss: str
    licence: str
    threads: int
    stand_in: bool = False


def run_fed_job(job: FedJob) -> None:
    """Exports the bundle and prints the measured parity; a verification keeps nothing."""
    if job.threads:
        torch.set_num_threads(job.threads)
    if job.is_verification:
        with tempfile.TemporaryDirectory() as folder:
            _report(
                export_fed(_describe(job, load_checkpoint(job.checkpoint), STAND_IN_TURNS), Path(folder) / "bundle")
            )
        return
    if job.output is None or not job.dialogues:
        raise ExporterError("give --output and --dialogues, or --verify; see docs/models/fed.md")
    reference = read_reference(job.dialogues, job.turns)
    bundle = export_fed(_describe(job, load_checkpoint(job.checkpoint), reference), job.output)
    _report(bundle)
    typer.echo(f"{bundle.manifest.reference} written to {job.output}")


def _describe(job: FedJob, checkpoint: FedCheckpoint, reference: Sequence[Sequence[str]]) -> FedExport:
    known = read_qualities(job.qualities or PUBLISHED_FILE)
    options = FedBundleOptions(
        qualities=known.qualities,
        default_qualities=tuple(known.default),
        loss=cast("Loss", _choose(job.loss, get_args(Loss), "loss")),
        join=cast("Join", _choose(job.join, get_args(Join), "join")),
        eos_id=checkpoint.eos_id,
        reference=REFERENCE_FILE,
    )
    return FedExport(
        checkpoint=checkpoint,
        version=job.version,
        options=options,
        reference=reference,
        source=f"system turns of {', '.join(path.name for path in job.dialogues)}",
        graphs=choose_graphs(job.graphs),
        training=_read_training(job.checkpoint),
        licence=job.licence,
        stand_in=job.stand_in,
    )


def _report(bundle: Bundle) -> None:
    for variant, spec in bundle.manifest.graphs.items():
        figures = ", ".join(f"{name} {value:.3g}" for name, value in spec.parity_measured.items())
        typer.echo(f"{variant} (tolerance {TOLERANCES[variant]} nats): {figures}")


def _read_training(checkpoint: str) -> dict[str, Any] | None:
    """The training record of `turnscore train dialogue-lm`; nothing for other checkpoints."""
    path = Path(checkpoint) / "training.json"
    if not path.is_file():
        return None
    training: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return training


def _choose(value: str, choices: Sequence[Value], option: str) -> Value:
    for choice in choices:
        if value == choice:
            return choice
    raise ExporterError(f"--{option} is {value!r}, expected one of {', '.join(choices)}")
