"""`make bench-references`: a million pairs of hypothesis and reference by a metric each, in a process of its own.

The texts are the multi-reference data's (docs/references.md): of each turn its five replies are the hypotheses, and as
many replies of this and the next turns as are needed the references. A process is measured with all that it does:
starting, reading the file, metrics, diversity, the report. CPU time, which a busy machine does not stretch.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from turnscore_assessment.references.reference_file import read_replies

PAIRS = 1_000_000


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
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _bytes_a_unit() / 2**20


def _bytes_a_unit() -> int:
    """Of ru_maxrss (getrusage(2)): KiB on Linux, bytes on macOS."""
    return 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Prints a line of a table for each metric."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the multi-reference data")
    parser.add_argument("--encoder", help="a bundle of kind encoder; without one it is left out")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--output", type=Path, default=Path("build/references"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    file = given.output / "pairs.jsonl"
    pairs, texts = write_pairs(given.data, file, given.pairs)
    print(f"{pairs} pairs of {texts} different texts, one thread")  # noqa: T201
    references = [str(Path(sys.executable).with_name("turnscore")), "references"]
    for metric in ("bleu-2", "bleu-4", "rouge-l", *(["encoder"] if given.encoder else [])):
        options = ["--encoder", given.encoder] if metric == "encoder" else []
        seconds, mebibytes = measure([*references, str(file), "--metric", metric, *options])
        figures = f"{seconds:.0f} s of CPU | {1e6 * seconds / pairs:.0f} us | {mebibytes:.0f} MiB"
        print(f"| `{metric}` | {figures} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
