"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DataOption = Annotated[Path, typer.Option("--data", help="Folder with the data files under their published names.")]
OptionalDataOption = Annotated[
    Path | None, typer.Option("--data", help="Folder with the data files under their published names.")
]
DialoguesOption = Annotated[
    list[Path] | None, typer.Option(help="Dialogues (JSON lines) in place of --data; repeatable.")
]
OutputOption = Annotated[Path, typer.Option("--output", help="Folder for the checkpoint; an interrupted run resumes.")]
EncoderOption = Annotated[str, typer.Option(help="A BERT: a folder, a name on the hub, or `minilm-l6`.")]
GraphsOption = Annotated[
    list[str] | None,
    typer.Option("--graph", help="Graph to write: fp32, cpu-int8, cuda-fp16; repeatable. Default: fp32 and cpu-int8."),
]
Int8ToleranceOption = Annotated[
    float, typer.Option(min=0, help="Largest allowed difference of the int8 graph's values.")
]
Fp16ToleranceOption = Annotated[
    float, typer.Option(min=0, help="Largest allowed difference of the fp16 graph's values.")
]
ThreadsOption = Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the choice to torch.")]
BundleVersionOption = Annotated[str, typer.Option("--version", help="Version of the bundle, such as 1.0.0.")]
BundleOutputOption = Annotated[Path, typer.Option("--output", help="Folder for the bundle; must be empty or missing.")]
ReferenceTurnsOption = Annotated[int, typer.Option("--turns", min=200, help="Real turns for parity and calibration.")]
LicenceOption = Annotated[str, typer.Option(help="Licence of the weights, for the manifest.")]
StoredBundleOption = Annotated[str, typer.Option("--bundle", help="A bundle: its folder (with a /), or its name.")]
