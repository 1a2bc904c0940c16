"""Measures what twenty criteria add to the cost of quality: conversations reply by reply, and many at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from turnscore_models.bundle import copy_bundle, read_bundle, write_bundle
from typer import Option

from turnscore_load.results import Check, Cost
from turnscore_load.scenarios.conversation import QUALITY, RANKED, WAYS, PairScenario

COUNT, MOST = 20, 1.05
NONE, ALL = "quality alone", f"quality and {COUNT} criteria"
_ASKED = [each for each in WAYS if each != RANKED]  # which asks quality alone


@dataclass(kw_only=True)
class Criteria(PairScenario):
    """Compare a service of quality alone with one that answers twenty criteria too."""

    services = (ALL, NONE)

    bundle: Annotated[Path, Option(help="A criterion's bundle, of which the twenty are copies.")]

    def measure(self) -> Sequence[Cost]:
        models = ",".join([QUALITY, *(f"{each}/" for each in self._copy())])
        return self.compare({ALL: {"TURNSCORE_MODELS": models}, NONE: {}}, _ASKED)

    def checks(self, found: Sequence[Cost]) -> Iterator[Check]:
        for way in _ASKED:
            more = self.ratio(found, way, "cpu_ms")
            yield Check(f"{way}: {COUNT} criteria cost at most {MOST - 1:.0%} of the CPU", f"{more:.3f}", more <= MOST)

    def _copy(self) -> Iterator[Path]:
        given = read_bundle(self.bundle)
        for place in range(COUNT):
            name = f"criterion_{place:02}"
            folder = self.folder / "bundles" / name
            folder.mkdir(parents=True, exist_ok=True)
            copied = copy_bundle(given, folder)
            write_bundle(folder, copied.manifest.model_copy(update={"name": name}), copied.lenders)
            yield folder
