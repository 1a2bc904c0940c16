"""`make bench-fed`: measures what FED costs on this machine and writes the page. Needs no weights."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from tokenizers import ByteLevelBPETokenizer
from turnscore_assessment.command_line import reported_errors
from turnscore_core.inference.devices import usable_cpus
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.fed.bundle import read_qualities

from turnscore_bench.fed.bench import FedBench
from turnscore_bench.fed.dialogues import OTHERS, SWEEP, measure_dialogues
from turnscore_bench.fed.report import BenchResult, write_report

app = typer.Typer(add_completion=False)


@app.command()
def bench_fed(
    tokenizer: Annotated[Path, typer.Option(help="Folder with GPT-2's vocab.json and merges.txt.")],
    output: Annotated[Path, typer.Option(help="Folder for the page and the plot.")] = Path("docs/benchmarks"),
    machine: Annotated[str, typer.Option(help="The machine's name on the page.")] = "an unnamed machine",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    layers: Annotated[int, typer.Option(min=1, help="Fewer than DialoGPT-small's 12 for a try.")] = 12,
    threads: Annotated[int, typer.Option(min=0, help="0 takes every CPU the process may use.")] = 0,
) -> None:
    """Compare the published way with the one pass, and measure how the cost grows."""
    threads = threads or usable_cpus()
    with reported_errors(ExporterError), tempfile.TemporaryDirectory() as folder:
        bench = FedBench(_read_tokenizer(tokenizer), read_qualities(), Path(folder), threads, layers)
        result = BenchResult(
            ways=bench.compare_ways(rounds),
            contexts=bench.measure_contexts(rounds),
            qualities=bench.measure_qualities(rounds),
            dialogues=measure_dialogues(bench, SWEEP, rounds),
            other_dialogues=measure_dialogues(bench, OTHERS, rounds),
        )
        date = datetime.now(UTC).date().isoformat()
        command = f"`python -m turnscore_bench.fed --rounds {rounds} --threads {threads}` (`make bench-fed`)"
        write_report(result, output, f"{command} on {machine}, {date}.")
    for way in result.ways:
        typer.echo(f"{way.name}: {1000 * way.seconds:,.0f} ms, {result.ways[0].seconds / way.seconds:.1f} times faster")


def _read_tokenizer(folder: Path) -> ByteLevelBPETokenizer:
    try:
        return ByteLevelBPETokenizer.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    except Exception as error:  # tokenizers raises plain Exception
        raise ExporterError(f"{folder}: has no vocab.json and merges.txt of a byte-level BPE ({error})") from error


if __name__ == "__main__":
    app()
