"""Options that several of the commands take."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_models.version_option import version_option

DISTRIBUTION = "turnscore-exporters"
VersionOption = Annotated[bool, version_option(DISTRIBUTION)]

DataOption = Annotated[Path, typer.Option("--data", help="Folder with the data files under their published names.")]
OutputOption = Annotated[Path, typer.Option("--output", help="Folder for the checkpoint; an interrupted run resumes.")]
EncoderOption = Annotated[str, typer.Option(help="A BERT: a folder, a name on the hub, or `minilm-l6`.")]
GraphsOption = Annotated[
    list[str] | None,
    typer.Option("--graph", help="Graph to write: fp32, cpu-int8, cuda-fp16; repeatable. Default: fp32 and cpu-int8."),
]
Int8ToleranceOption = Annotated[
    float, typer.Option(min=0, help="Largest difference of a value the int8 graph may show.")
]
Fp16ToleranceOption = Annotated[
    float, typer.Option(min=0, help="Largest difference of a value the fp16 graph may show.")
]
ThreadsOption = Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the choice to torch.")]
