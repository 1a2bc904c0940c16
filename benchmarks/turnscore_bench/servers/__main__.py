"""`make bench`: turnscore beside the bare runtime and other servers on the same model, in one run.

Sends load to 127.0.0.1 only. The other servers are installed from PyPI into environments of their own.
"""

import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from turnscore_core.inference.devices import usable_cpus
from turnscore_models import starter_bundles

from turnscore_bench.harness import environments, machine
from turnscore_bench.harness.traffic import LENGTH_MIXES, Traffic
from turnscore_bench.servers import tables
from turnscore_bench.servers.arena import Arena
from turnscore_bench.servers.bare import BareProcess, EngagementRows
from turnscore_bench.servers.contenders import Contender, turnscore_contenders
from turnscore_bench.servers.foreign_contenders import bentoml_contenders, infinity_contenders, litserve_contender
from turnscore_bench.servers.report import read_results, write_report
from turnscore_bench.servers.results import Results
from turnscore_bench.servers.rounds import Schedule, enter, find_best, run_rounds

_MIXES = {
    mix.name: f"{mix.name.capitalize()}: {mix.least} to {mix.most} tokens per turn" for mix in LENGTH_MIXES.values()
}


def _words(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


def bench(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's python and bentoml.")],
    output: Annotated[Path, typer.Option(help="Folder for environments, logs, JSON and plot.")] = Path("build/bench"),
    write_page: Annotated[Path | None, typer.Option("--page", help="Page whose tables are written anew.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    turns: Annotated[int, typer.Option(min=50, help="Mixed turns a measurement.")] = 300,
    clients: Annotated[str, typer.Option(help="Numbers of clients.")] = "1,8,32,128",
    mixes: Annotated[str, typer.Option(help="Mixes of lengths: short, mixed, long.")] = "short,mixed,long",
    add: Annotated[bool, typer.Option(help="Add these rounds to those of the run before.")] = False,
    only: Annotated[str, typer.Option(help="Keys of the contenders to measure; all when empty.")] = "",
    where: Annotated[str, typer.Option("--machine", help="The machine on the page; empty: from the system.")] = "",
) -> None:
    """Measure CPU and wall seconds per 1,000 turns, alternating, and print the ratios."""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    bundle = next(folder for folder in starter_bundles() if folder.name == "engagement")
    rows = EngagementRows(bundle)
    schedule = Schedule(
        mixes=[LENGTH_MIXES[each] for each in _words(mixes)],
        clients=[int(each) for each in _words(clients)],
        rounds=rounds,
        turns=turns,
    )
    contenders = _contenders(serving, output, rows, _words(only))
    results = read_results(output) if add else Results()
    results.not_run.clear()
    results.conditions.update(_conditions(where or machine.describe(usable_cpus())))
    _run(schedule, contenders, rows, serving, output, results)
    if write_page:
        write_report(results, output, write_page)
    typer.echo(tables.ratios(results))
    for what, why in results.not_run.items():
        typer.echo(f"not run: {what}: {why}")


def _contenders(serving: Path, output: Path, rows: EngagementRows, only: Sequence[str]) -> list[Contender]:
    files = {"BENCH_GRAPH": str(rows.graph), "BENCH_TOKENIZER": str(rows.tokenizer)}
    everybody = [
        *turnscore_contenders(serving / "bentoml", rows.bundle.folder, {"BENTOML_HOME": str(output / "bentoml")}),
        *bentoml_contenders(output, files),
        litserve_contender(output, files),
        *infinity_contenders(output, rows.graph),
    ]
    return [each for each in everybody if not only or each.key in only]


def _conditions(where: str) -> dict[str, object]:
    date = datetime.now(UTC).date().isoformat()
    servers = (environments.BENTOML[0], environments.LITSERVE[0], environments.INFINITY[0])
    versions = f"onnxruntime {version('onnxruntime')}, {', '.join(each.replace('==', ' ') for each in servers)}"
    caption = f"Measured on {where}, {date}; {versions}."
    return {"caption": caption, "machine": where, "date": date, "mixes": _MIXES}


def _run(
    schedule: Schedule,
    contenders: Sequence[Contender],
    rows: EngagementRows,
    serving: Path,
    output: Path,
    results: Results,
) -> None:
    traffic = Traffic(rows.tokenizer, rows.bundle.manifest.token_limit)
    bare = BareProcess(serving / "python", rows, usable_cpus(), output)
    arena = Arena(output, traffic)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended
    try:
        find_best(schedule, bare, traffic, results, typer.echo)
        entered = enter(contenders, schedule.mixes[0], arena, bare, rows, results, typer.echo)
        run_rounds(schedule, entered, arena, bare, traffic, results, typer.echo)
    finally:
        write_report(results, output, None)  # an interrupted run leaves what it has
        arena.stop()
        bare.stop()


if __name__ == "__main__":
    typer.run(bench)
