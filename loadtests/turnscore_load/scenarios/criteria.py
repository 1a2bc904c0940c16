"""Measures what twenty criteria add to the cost of quality: conversations reply by reply, and many at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from turnscore_models import read_bundle, write_bundle
from turnscore_models.bundle import copy_bundle
from typer import Option

from turnscore_load.fleet import STARTER
from turnscore_load.results import Check, in_turn, number, table
from turnscore_load.scenario import Scenario
from turnscore_load.scenarios.conversation import WAYS, Cost, figures_of, measure_way

COUNT, MOST = 20, 1.05
NONE, ALL = "quality alone", f"quality and {COUNT} criteria"
_ASKED = [each for each in WAYS if "ranking" not in each]  # which ask quality alone


@dataclass(kw_only=True)
class Criteria(Scenario[Sequence[Cost]]):
    """Compare a service of quality alone with one that answers twenty criteria too; both without a score cache."""

    bundle: Annotated[Path, Option(help="A criterion's bundle, of which the twenty are copies.")]
    rounds: Annotated[int, Option(min=1, help="Rounds of each service, in turns.")] = 5
    conversations: Annotated[int, Option(min=1, help="Conversations of a round.")] = 20

    def measure(self) -> Sequence[Cost]:
        quality = f"{STARTER / 'quality'}/"
        own = {"TURNSCORE_CACHE__TTL_SECONDS": "0", "TURNSCORE_GRPC__ENABLED": "false"}
        models = [quality, *(f"{each}/" for each in self._copy())]
        costs: list[Cost] = []
        with (
            self.started("none", {**own, "TURNSCORE_MODELS": quality}) as none,
            self.started("all", {**own, "TURNSCORE_MODELS": ",".join(models)}) as all_,
        ):
            services = {NONE: none, ALL: all_}
            for each in services.values():
                each.pause()
            for round_, name in in_turn(services, self.rounds + 1):
                typer.echo(f"round {round_} of {self.rounds}: {name}" if round_ else f"warming up: {name}")
                measured = [measure_way(services[name], name, way, round_, self.conversations) for way in _ASKED]
                costs += measured if round_ else []
        return costs

    def report(self, found: Sequence[Cost]) -> Iterator[str]:
        rows = []
        for way in _ASKED:
            for name in (NONE, ALL):
                figures = [median(figures_of(found, way, name, each)) for each in ("cpu_ms", "p50_ms", "per_second")]
                rows.append([way, name, *(number(each, 2) for each in figures)])
            rows.append([way, "ratio of CPU", number(_ratio(found, way), 3), "", ""])
        yield table(["way", "scorers", "CPU ms per reply", "p50 ms", "per second"], rows, texts=2)

    def checks(self, found: Sequence[Cost]) -> Iterator[Check]:
        for way in _ASKED:
            ratio = _ratio(found, way)
            yield Check(
                f"{way}: {COUNT} criteria cost at most {MOST - 1:.0%} of the CPU", f"{ratio:.3f}", ratio <= MOST
            )

    def _copy(self) -> Iterator[Path]:
        given = read_bundle(self.bundle)
        for place in range(COUNT):
            name = f"criterion_{place:02}"
            folder = self.folder / "bundles" / name
            folder.mkdir(parents=True, exist_ok=True)
            copied = copy_bundle(given, folder)
            write_bundle(folder, copied.manifest.model_copy(update={"name": name}), copied.lenders)
            yield folder


def _ratio(costs: Sequence[Cost], way: str) -> float:
    with_, without = (figures_of(costs, way, name, "cpu_ms") for name in (ALL, NONE))
    return median(one / other for one, other in zip(with_, without, strict=True))
