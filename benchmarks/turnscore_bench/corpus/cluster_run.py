"""`make cluster-corpus`: a corpus on three nodes of Ray; a node is killed, then the driver. Prints Markdown.

The same command then goes on to the end, and its output is compared with that of a run that nobody disturbed.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from turnscore_core.inference.devices import usable_cpus
from turnscore_models import starter_bundles

from turnscore_bench.corpus.dialogues import write_dialogues
from turnscore_bench.corpus.ray_nodes import NODES, cluster_of_nodes, kill_node
from turnscore_bench.corpus.same_content import count_same_rows
from turnscore_bench.harness.machine import describe
from turnscore_bench.harness.page import markers, number, table, write_between_markers

MARKERS = markers("make cluster-corpus")
BLOCK_DIALOGUES = 200
"""So that there are blocks to lose in a corpus of minutes. Chosen."""
_NODE_DIES, _DRIVER_DIES = 1 / 3, 2 / 3
"""Shares of the blocks that are committed then. Chosen."""
_LOOK_SECONDS = 0.2


@dataclass(slots=True)
class Story:
    """What happened, when, and how many blocks were committed then."""

    output: Path
    began: float = field(default_factory=time.monotonic)
    rows: list[list[str]] = field(default_factory=list)

    def tell(self, what: str) -> None:
        """Adds it."""
        self.rows.append([what, number(time.monotonic() - self.began, 0), number(self.committed, 0)])
        typer.echo(f"{what}: {self.rows[-1][1]} s, {self.committed} blocks", err=True)

    @property
    def committed(self) -> int:
        """Blocks that have their manifest."""
        return len(list(self.output.glob("manifests/part-*.json")))


def main(
    turns: Annotated[int, typer.Option(help="System turns.")] = 100_000,
    output: Annotated[Path, typer.Option(help="Folder for corpus and outputs.")] = Path("build/cluster-corpus"),
    write_page: Annotated[Path | None, typer.Option("--page", help="Page whose table is written anew.")] = None,
) -> None:
    """Score a corpus on a cluster that loses a node and its driver; compare the output with an undisturbed run's."""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    source = output / f"dialogues-{turns}.jsonl"
    written = write_dialogues(source, turns)
    whole, disturbed = output / f"whole-{turns}", output / f"disturbed-{turns}"
    for each in (whole, disturbed):
        shutil.rmtree(each, ignore_errors=True)
    began = time.monotonic()
    subprocess.run(_command(source, whole, "--workers", "1"), check=True)
    alone = time.monotonic() - began
    blocks = len(list(whole.glob("manifests/part-*.json")))
    story = disturb(source, disturbed, blocks)
    same = count_same_rows(whole, disturbed)
    equal = ", ".join(f"{number(count, 0)} of `{name}`" for name, count in same.items())
    text = "\n\n".join(
        [
            table(["what happened", "seconds", f"of {blocks} blocks committed"], story.rows, texts=1),
            f"{number(written, 0)} turns, engagement. Rows with the same cells as those of an undisturbed run in one "
            f"process, which took {number(alone, 0)} s: {equal}; no other rows.",
            f"{describe(usable_cpus())}, {datetime.now(UTC).date().isoformat()}.",
        ]
    )
    typer.echo(text)
    if write_page is not None:
        write_between_markers(write_page, text, MARKERS)


def disturb(source: Path, output: Path, blocks: int) -> Story:
    """Scores the file on a cluster that loses a node, by a driver that is killed and begun again."""
    story = Story(output)
    with cluster_of_nodes() as cluster:
        story.tell(f"{NODES} nodes are there")
        command = _command(source, output, "--engine", "ray", "--address", cluster.address, "--workers", str(NODES))
        with _driver(command) as driver:
            _wait(driver, story, int(_NODE_DIES * blocks))
            workers = kill_node(cluster)
            story.tell(f"a node is killed, with {workers} of {NODES} workers on it")
            _wait(driver, story, int(_DRIVER_DIES * blocks))
        story.tell("the driver is killed (`kill -9`)")
        subprocess.run(command, check=True)
        story.tell("the same command has gone on to the end")
    return story


def _command(source: Path, output: Path, *more: str) -> list[str]:
    bundle = next(folder for folder in starter_bundles() if folder.name == "engagement")
    program = str(Path(sys.executable).with_name("turnscore"))
    options = ["--models", f"{bundle}{os.sep}", "--block-dialogues", str(BLOCK_DIALOGUES), *more]
    return [program, "corpus", "score", *options, str(source), str(output)]


@contextmanager
def _driver(command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """The command, killed at the end."""
    with subprocess.Popen(command) as driver:
        try:
            yield driver
        finally:
            driver.kill()


def _wait(driver: "subprocess.Popen[bytes]", story: Story, blocks: int) -> None:
    """Until so many are committed. Raises typer.Exit where the driver ends before."""
    while story.committed < blocks:
        if driver.poll() is not None:
            story.tell(f"the driver has ended by itself, with {driver.returncode}")
            raise typer.Exit(1)
        time.sleep(_LOOK_SECONDS)  # polling another process: there is nothing to wait on


if __name__ == "__main__":
    typer.run(main)
