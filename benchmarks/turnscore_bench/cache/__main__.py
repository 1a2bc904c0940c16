"""`make bench-cache`: the real service on starter bundles with a real redis-server, in one run of alternating rounds.

Sends load to 127.0.0.1 only. Exit status 1 where a target was missed.
"""

import json
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from turnscore_core.inference.devices import usable_cpus
from turnscore_models import read_bundle, starter_bundles

from turnscore_bench.cache import rounds
from turnscore_bench.cache.faults import run_faults
from turnscore_bench.cache.redis_process import RedisProcess
from turnscore_bench.cache.samples import Findings, read_findings
from turnscore_bench.cache.services import Services, cache_specs, fault_specs, process_specs
from turnscore_bench.cache.tables import targets, write_tables
from turnscore_bench.cache.verdicts import judge
from turnscore_bench.cache.ways import Question, Requests
from turnscore_bench.harness import machine
from turnscore_bench.harness.page import markers, write_between_markers
from turnscore_bench.harness.traffic import Traffic

QUESTIONS = [Question(scorer, size, clients) for scorer in ("engagement", "fed") for size, clients in ((1, 1), (1, 32))]
BATCHES = [Question("engagement", 16, 1), Question("engagement", 16, 8)]
MARKERS = markers("make bench-cache")
RESULTS_FILE = "results.json"


def bench_cache(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's bentoml.")],
    output: Annotated[Path, typer.Option(help="Folder for logs and JSON.")] = Path("build/bench-cache"),
    write_page: Annotated[Path | None, typer.Option("--page", help="Page whose tables are written anew.")] = None,
    count: Annotated[int, typer.Option("--rounds", min=1)] = 3,
    turns: Annotated[int, typer.Option(min=8, help="Engagement turns a measurement; FED has a third.")] = 100,
    batches: Annotated[bool, typer.Option(help="Also measure 16 turns per request.")] = True,
    only: Annotated[str, typer.Option(help="`costs`, `faults` or `locks`; the rest stays as it was.")] = "",
    where: Annotated[str, typer.Option("--machine", help="The machine on the page; empty: from the system.")] = "",
) -> None:
    """Measure hits, misses, repeats and faults, print each target with its verdict."""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    bundles = {folder.name: folder for folder in starter_bundles()}
    bundle = read_bundle(bundles["engagement"])
    traffic = Traffic(bundle.path_of(bundle.manifest.tokenizer), bundle.manifest.token_limit)
    sizes = rounds.Sizes(engagement=turns, fed=turns // 3, hits=8 * turns, faults=2 * turns)
    redis, services, findings = (
        RedisProcess(output / "redis"),
        Services(serving=serving, bundles=bundles, output=output),
        Findings(),
    )
    if only:
        findings = read_findings(output / RESULTS_FILE)
    run = rounds.Run(
        services=services, redis=redis, requests=Requests(traffic, 64), sizes=sizes, findings=findings, say=typer.echo
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    try:
        redis.start()
        conditions = _describe_run(redis, where or machine.describe(usable_cpus()))
        parts = {
            "costs": partial(_measure_costs, run, count, [*QUESTIONS, *BATCHES] if batches else QUESTIONS),
            "faults": partial(_measure_faults, run, count),
            "locks": partial(_measure_locks, run),
        }
        for part in (only,) if only else parts:
            rounds_text = "One round." if part == "locks" else f"Medians of {count} rounds."
            findings.captions[part] = f"{part.capitalize()}: {conditions} {rounds_text}"
            parts[part]()
    finally:
        services.stop()
        redis.kill()
        (output / RESULTS_FILE).write_text(json.dumps(findings.to_json(), indent=1), encoding="utf-8")
    if write_page:
        write_between_markers(write_page, write_tables(findings), MARKERS)
    typer.echo(targets(findings) if write_page else write_tables(findings))
    if any(each.is_met is False for each in judge(findings)):
        raise typer.Exit(1)


def _describe_run(redis: RedisProcess, where: str) -> str:
    versions = f"onnxruntime {version('onnxruntime')}, redis-server {redis.version()}, redis-py {version('redis')}"
    return f"Measured on {where}, {datetime.now(UTC).date().isoformat()}; {versions}."


def _measure_costs(run: rounds.Run, count: int, questions: Sequence[Question]) -> None:
    run.findings.samples.clear()
    run.services.start(cache_specs(run.redis.url), run.say)
    rounds.warm_up(run, [Question("engagement", 1, 1), Question("fed", 1, 1)])
    for number in range(count):
        rounds.run_round(run, number, questions)
    run.services.stop()


def _measure_faults(run: rounds.Run, count: int) -> None:
    run.findings.faults.clear()
    run.services.start(fault_specs(run.redis.url), run.say)
    for number in range(count):
        run_faults(run, number)
    run.services.stop()


def _measure_locks(run: rounds.Run) -> None:
    run.findings.duplicates.clear()
    specs = process_specs(run.redis.url)
    run.services.start(specs, run.say)
    for spec in specs:
        rounds.wait_until_in_use(run.services, spec.key)
    rounds.count_duplicates(run, [spec.key for spec in specs])
    rounds.time_locks(run)
    run.services.stop()


if __name__ == "__main__":
    typer.run(bench_cache)
