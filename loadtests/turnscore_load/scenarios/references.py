"""Measures a million pairs of hypothesis and reference by a metric each, in a process of its own.

The texts are the multi-reference data's: of each turn its five replies are the hypotheses, and as many replies of this
and the next turns as are needed the references. A process is measured with all that it does: starting, reading the
file, metrics, diversity, the report. CPU time, which a busy machine does not stretch.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.references.ngram_metrics import read_replies

from turnscore_load.results import ScenarioResult, table


def main(
    data: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Folder of the multi-reference data.")],
    encoder: Annotated[str, typer.Option(help="A bundle of kind encoder; without one it is left out.")] = "",
    pairs: Annotated[int, typer.Option(min=1)] = 1_000_000,
    output: Annotated[Path, typer.Option(help="Folder for the pairs.")] = Path("build/references"),
) -> ScenarioResult:
    """Measure CPU seconds and memory of each metric."""
    output.mkdir(parents=True, exist_ok=True)
    file = output / "pairs.jsonl"
    count, texts = write_pairs(data, file, pairs)
    command, rows = [str(Path(sys.executable).with_name("turnscore")), "references"], []
    for metric in ("bleu-2", "bleu-4", "rouge-l", *(["encoder"] if encoder else [])):
        options = ["--encoder", encoder] if metric == "encoder" else []
        seconds, mebibytes = measure([*command, str(file), "--metric", metric, *options])
        rows.append([f"`{metric}`", f"{seconds:.0f}", f"{1e6 * seconds / count:.0f}", f"{mebibytes:.0f}"])
    head = ["metric", "CPU s", "us per pair", "memory, MiB"]
    told = f"{count} pairs of {texts} different texts, one thread"
    return ScenarioResult(scenario="references", parts=[told, table(head, rows, texts=1)])


def write_pairs(folder: Path, output: Path, pairs: int) -> tuple[int, int]:
    """Writes rows of at least so many pairs; how many pairs they make, of how many different texts."""
    replies = list(read_replies(folder).values())
    flat = [text for texts in replies for text in texts]
    own = len(replies[0])
    per_row = -(-pairs // (len(replies) * own))
    count, used = 0, set[str]()
    with output.open("w", encoding="utf-8") as lines:
        for place, texts in enumerate(replies):
            others = [flat[(place * own + step) % len(flat)] for step in range(per_row)]
            row = {"context_id": str(place), "hypotheses": list(texts), "references": others}
            lines.write(json.dumps(row) + "\n")
            count += len(texts) * len(others)
            used.update(texts, others)
    return count, len(used)


def measure(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds and the most MiB of memory of a process. Raises CalledProcessError where it fails."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(status, list(command))
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss of getrusage(2): KiB on Linux, bytes on macOS
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20
