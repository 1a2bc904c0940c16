"""The commands that make a new bundle, checkpoint or file from an existing one. Train nothing."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.command_line import reported_errors
from turnscore_models import BundleError, read_bundle

from turnscore_exporters.commands.options import (
    BundleOutputOption,
    BundleVersionOption,
    DataOption,
    StoredBundleOption,
)
from turnscore_exporters.errors import ExporterError


def self_test(
    bundle: Annotated[Path, typer.Option(help="Folder of a bundle, of any age.")],
    version: BundleVersionOption,
    output: BundleOutputOption,
) -> None:
    """Write a bundle anew with its graphs' own outputs as self-test; weights stay byte for byte."""
    from turnscore_exporters.rebuild_bundle import renew_self_test

    with reported_errors(ExporterError, BundleError):
        renewed = renew_self_test(read_bundle(bundle), version, output)
    typer.echo(f"{renewed.manifest.reference} written to {output}; tolerances: {renewed.self_test().tolerances}")


def percentiles(
    bundle: StoredBundleOption,
    data: DataOption,
    version: BundleVersionOption,
    output: BundleOutputOption,
    turns: Annotated[int | None, typer.Option(min=100, help="Most turns of the population.")] = None,
) -> None:
    """Write a bundle anew with percentiles among turns that no shipped model was trained on; weights stay."""
    from turnscore_assessment.data.dialogue_sets import read_population
    from turnscore_models.store import resolve

    from turnscore_exporters.rebuild_bundle import renew_percentiles

    with reported_errors(ExporterError, BundleError):
        renewed = renew_percentiles(resolve(bundle), read_population(data), version, output, turns)
    typer.echo(f"{renewed.manifest.reference} written to {output}: {renewed.calibration().turns} turns")


def recover(
    bundle: StoredBundleOption,
    output: Annotated[Path, typer.Option(help="Folder for the checkpoint.")],
) -> None:
    """Write a quality checkpoint from a bundle's int8 graph, where the original checkpoint is lost."""
    from turnscore_models.store import resolve

    from turnscore_exporters.quality.recovery import recover_checkpoint

    with reported_errors(ExporterError, BundleError):
        recover_checkpoint(resolve(bundle), output)
    typer.echo(f"{output}: a checkpoint of {bundle}")


def release(
    checkpoint: Annotated[Path, typer.Option(help="Folder that turnscore train wrote.")],
    output: Annotated[Path, typer.Option(dir_okay=False, help="The file, such as quality-checkpoint-1.0.0.tar.")],
) -> None:
    """Pack a checkpoint into one file to keep, and print its checksum as sha256sum does."""
    from turnscore_exporters.training.checkpoints import pack_checkpoint

    with reported_errors(ExporterError):
        digest = pack_checkpoint(checkpoint, output)
    typer.echo(f"{digest}  {output}")
