"""`turnscore-assess toys`: serves the toy chatbots, and writes a study of them to try."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

TOY_PORT = 8210
STUDY_FILES = ("STUDY.toml", "corpus.jsonl")


def run(
    folder: Annotated[
        Path, typer.Argument(file_okay=False, help="Folder for STUDY.toml and its corpus, unless it has them.")
    ],
    port: Annotated[int, typer.Option(min=1, max=65535, help="On 127.0.0.1.")] = TOY_PORT,
) -> None:
    """Serve three toy chatbots on this machine, and write a study of them to try."""
    from turnscore_assessment.study.serving import run_server
    from turnscore_assessment.study.toys.server import create_toy_app

    folder.mkdir(parents=True, exist_ok=True)
    for name in STUDY_FILES:
        if not (folder / name).exists():
            text = files("turnscore_assessment.study.toys").joinpath(name).read_text(encoding="utf-8")
            (folder / name).write_text(text.replace(f":{TOY_PORT}/", f":{port}/"), encoding="utf-8")
            typer.echo(f"wrote {folder / name}")
    typer.echo(f"serving toy chatbots at http://127.0.0.1:{port}/v1; stop them with Ctrl-C", err=True)
    run_server(create_toy_app(), "127.0.0.1", port)
