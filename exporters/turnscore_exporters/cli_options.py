"""Options that several of the training commands take."""

from pathlib import Path
from typing import Annotated

import typer

DataOption = Annotated[Path, typer.Option("--data", help="Folder with the data files under their published names.")]
OutputOption = Annotated[Path, typer.Option("--output", help="Folder for the checkpoint; an interrupted run resumes.")]
EncoderOption = Annotated[str, typer.Option(help="A BERT: a folder, a name on the hub, or `minilm-l6`.")]
ThreadsOption = Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves the choice to torch.")]
