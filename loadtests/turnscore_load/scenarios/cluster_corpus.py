"""Scores a corpus on three nodes of Ray, kills one of them and the driver, and compares the output.

The same command then goes on to the end, and its output is compared with that of a run that nothing disturbed.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from turnscore_models import starter_bundles

from turnscore_load.corpus_ways import write_dialogues
from turnscore_load.machine import ScenarioError
from turnscore_load.processes import StartError
from turnscore_load.ray_nodes import NODES, cluster_of_nodes, kill_node
from turnscore_load.results import ScenarioResult, number, table

BLOCK_DIALOGUES = 200
"""So that there are blocks to lose in a corpus of minutes. Chosen."""
_NODE_DIES, _DRIVER_DIES = 1 / 3, 2 / 3
"""Shares of the blocks that are committed then. Chosen."""
_LOOK_SECONDS = 0.2


class DifferentContentError(ScenarioError):
    """The folders do not hold the same rows; the message names the first file that differs."""


@dataclass(slots=True)
class Story:
    """What happened, when, and how many blocks were committed then."""

    output: Path
    began: float = field(default_factory=time.monotonic)
    rows: list[list[str]] = field(default_factory=list)

    def add(self, what: str) -> None:
        """Notes it with the time."""
        self.rows.append([what, number(time.monotonic() - self.began), number(self.committed)])
        typer.echo(f"{what}: {self.rows[-1][1]} s, {self.committed} blocks", err=True)

    @property
    def committed(self) -> int:
        """Blocks that have their manifest."""
        return len(list(self.output.glob("manifests/part-*.json")))


def main(
    turns: Annotated[int, typer.Option(help="System turns.")] = 100_000,
    output: Annotated[Path, typer.Option(help="Folder for corpus and outputs.")] = Path("build/cluster-corpus"),
) -> ScenarioResult:
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
    equal = ", ".join(f"{number(count)} of `{name}`" for name, count in same.items())
    told = (
        f"{number(written)} turns, engagement. Rows with the same cells as those of an undisturbed run in one "
        f"process, which took {number(alone)} s: {equal}; no other rows."
    )
    head = ["what happened", "seconds", f"of {blocks} blocks committed"]
    return ScenarioResult(scenario="cluster-corpus", parts=[table(head, story.rows, texts=1), told])


def disturb(source: Path, output: Path, blocks: int) -> Story:
    """Scores the file on a cluster that loses a node, by a driver that is killed and begun again."""
    story = Story(output)
    with cluster_of_nodes() as cluster:
        story.add(f"{NODES} nodes are there")
        command = _command(source, output, "--engine", "ray", "--address", cluster.address, "--workers", str(NODES))
        with _driver(command) as driver:
            _wait(driver, story, int(_NODE_DIES * blocks))
            workers = kill_node(cluster)
            story.add(f"a node is killed, with {workers} of {NODES} workers on it")
            _wait(driver, story, int(_DRIVER_DIES * blocks))
        story.add("the driver is killed (`kill -9`)")
        subprocess.run(command, check=True)
        story.add("the same command has gone on to the end")
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
    """Until so many are committed. Raises StartError where the driver ends before."""
    while story.committed < blocks:
        if driver.poll() is not None:
            raise StartError(f"the driver has ended by itself, with {driver.returncode}")
        time.sleep(_LOOK_SECONDS)  # polling another process: there is nothing to wait on


def count_same_rows(folder: Path, other: Path) -> dict[str, int]:
    """How many rows each table has, in the same order with the same cells in both. Raises DifferentContentError."""
    from pyarrow import parquet
    from turnscore_corpus.outputs.folder import TABLES

    counts = dict.fromkeys(TABLES, 0)
    for name in TABLES:
        files, others = ({each.name for each in (place / name).glob("[!.]*")} for place in (folder, other))
        if files != others:
            raise DifferentContentError(f"{name}/{min(files ^ others)} is in one folder alone")
        for file in sorted(files):
            rows = parquet.read_table(folder / name / file)
            if not rows.equals(parquet.read_table(other / name / file)):
                raise DifferentContentError(f"{name}/{file} differs")
            counts[name] += rows.num_rows
    return counts
