"""`make bench-scorers DATA=FILE`: what a turn costs each scorer and several together, in one run, as Markdown."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_load.equality import read_dialogues
from turnscore_models import read_bundle, starter_bundles

from turnscore_bench.harness.machine import describe
from turnscore_bench.scorers.costs import measure_costs, plan_ways
from turnscore_bench.scorers.table import format_costs

BEFORE = ("engagement", "sentiment_stop")
SETS: list[tuple[str, ...]] = [("sentiment_stop",), ("engagement",), ("quality",), BEFORE, (*BEFORE, "quality")]


def main(
    data: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSON lines of dialogues; may be gzipped.")],
    turns: Annotated[int, typer.Option(min=2, max=5000, help="System turns to score, about.")] = 300,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each is run, alternating.")] = 5,
) -> None:
    """Print the CPU time of a turn by scorer, one thread, and its ratio to sentiment_stop's."""
    bundles = [read_bundle(folder) for folder in starter_bundles() if folder.name in SETS[-1]]
    scorers = {each.manifest.kind: load_scorer(each, choose_variant(each), threads=1) for each in bundles}
    ways = plan_ways(read_dialogues(data, turns))
    costs = measure_costs(scorers, SETS, ways, rounds)
    typer.echo(format_costs(costs))
    count = sum(map(len, next(iter(ways.values()))))
    served = ", ".join(f"`{each.manifest.reference}`" for each in bundles)
    typer.echo(
        f"\n{served}; {count} system turns of {data.name}, one thread, medians of {rounds} alternating rounds; "
        f"{describe(usable_cpus())}, {datetime.now(UTC).date().isoformat()}."
    )


if __name__ == "__main__":
    typer.run(main)
