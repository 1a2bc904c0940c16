"""What every export command does around its own work: torch's threads, errors as sentences, the report."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from turnscore_assessment.command_line import reported_errors
from turnscore_models import Bundle

from turnscore_exporters.errors import ExporterError

if TYPE_CHECKING:
    from turnscore_exporters.bundles.encoder import GraphChoice


@contextmanager
def exporting(threads: int) -> Iterator[Callable[[Bundle], None]]:
    """Gives the function that reports the bundle; an ExporterError ends the command with its message.

    torch computes with so many threads; 0 leaves the choice to torch.
    """
    if threads:
        import torch

        torch.set_num_threads(threads)
    with reported_errors(ExporterError):
        yield _report


def choose_graphs(names: Sequence[str] | None, int8_tolerance: float, fp16_tolerance: float = 0.02) -> "GraphChoice":
    """The graphs to write, and each one's largest difference from the checkpoint. ExporterError for an unknown name."""
    from turnscore_exporters.bundles import encoder, writer

    return encoder.GraphChoice(writer.choose_graphs(names), int8_tolerance, fp16_tolerance)


def _report(bundle: Bundle) -> None:
    for variant, spec in bundle.manifest.graphs.items():
        typer.echo(f"{variant}: {spec.parity_measured}")
    typer.echo(f"{bundle.manifest.reference} written to {bundle.folder}")
