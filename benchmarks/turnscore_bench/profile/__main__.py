"""`make profile`: what a turn costs beside inference, by stage and line, over HTTP, gRPC and in a live conversation.

Sends load to 127.0.0.1 only.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from turnscore_core.inference.devices import usable_cpus
from turnscore_models import starter_bundles

from turnscore_bench.harness.machine import describe
from turnscore_bench.harness.page import markers, write_between_markers
from turnscore_bench.harness.traffic import Traffic
from turnscore_bench.profile.measuring import WAYS, Profile, ProfiledService, measure
from turnscore_bench.profile.page import line_table, stage_table
from turnscore_bench.servers.bare import EngagementRows

_RUNTIMES = {True: "With a runtime that answers at once", False: "With ONNX Runtime"}
_REAL_SHARE = 0.25
"""Of the turns are sent where each is computed, which takes so much longer. Chosen."""


def main(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's python.")] = Path(
        sys.executable
    ).parent,
    output: Annotated[Path, typer.Option(help="Folder for logs and jobs.")] = Path("build/profile"),
    write_page: Annotated[Path | None, typer.Option("--page", help="Page whose tables are written anew.")] = None,
    turns: Annotated[int, typer.Option(min=100, help="Turns a measurement.")] = 4000,
    only: Annotated[str, typer.Option(help="A part of the ways' labels; all when empty.")] = "",
    real: Annotated[bool, typer.Option(help="With ONNX Runtime too.")] = True,
) -> None:
    """Print, or write, the CPU of a turn by stage and by line."""
    bundle = next(folder for folder in starter_bundles() if folder.name == "engagement")
    rows = EngagementRows(bundle)
    parts = []
    for at_once in (True, False) if real else (True,):
        traffic = Traffic(rows.tokenizer, rows.bundle.manifest.token_limit)
        count = turns if at_once else int(turns * _REAL_SHARE)
        service = ProfiledService(serving / "python", bundle, output.resolve(), at_once=at_once)
        try:
            profiles = [measure(service, way, traffic, count, output) for way in WAYS if only in way.label]
        finally:
            service.stop()
        parts += [f"## {_RUNTIMES[at_once]}", stage_table(profiles)]
        parts += _lines(profiles) if at_once else []
    where = f"Measured on {describe(usable_cpus())}, {datetime.now(UTC).date().isoformat()}"
    caption = f"{where}; {turns} turns a column, a quarter with ONNX Runtime."
    text = "\n\n".join([caption, *parts])
    typer.echo(text)
    if write_page:
        write_between_markers(write_page, text, markers("make profile"))


def _lines(profiles: list[Profile]) -> list[str]:
    root = Path(__file__).parents[3]
    return [part for each in profiles for part in (f"### {each.way.label}: lines", line_table(each, root))]


if __name__ == "__main__":
    typer.run(main)
