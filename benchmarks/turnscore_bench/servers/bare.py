"""The bare runtime's parent side: starts its process, gives it turns, reads what it measured."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models import GraphVariant, read_bundle
from turnscore_wire import Turn

from turnscore_bench.harness.traffic import BenchTurn
from turnscore_bench.servers.ideal_batches import Rows

VARIANT: GraphVariant = "cpu-int8"


class EngagementRows:
    """Makes of turns the rows that the service's scorer makes of them."""

    def __init__(self, bundle: Path) -> None:
        """Raises BundleError where the bundle is refused."""
        self.bundle = read_bundle(bundle)
        self._scorer = load_scorer(self.bundle, VARIANT, threads=1).scorer
        assert isinstance(self._scorer, EngagementScorer)

    @property
    def graph(self) -> Path:
        """The graph that everybody runs."""
        return self.bundle.path_of(self.bundle.manifest.graphs[VARIANT].file)

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's file."""
        return self.bundle.path_of(self.bundle.manifest.tokenizer)

    def of(self, turns: Sequence[BenchTurn]) -> list[Rows]:
        """The rows of each turn, special tokens included."""
        asked = [TurnToScore([Turn(speaker="user", text=turn.query)], turn.reply) for turn in turns]
        return [pack.rows for pack in self._scorer.encode(asked)]


class BareProcess:
    """The process that runs `bare_runtime`."""

    def __init__(self, python: Path, rows: EngagementRows, cpus: int, folder: Path) -> None:
        """Starts it with the service's Python, so that it has the service's ONNX Runtime."""
        folder.mkdir(parents=True, exist_ok=True)
        self._rows = rows
        self._turns_file = folder / "turns.json"
        self._process = subprocess.Popen(
            [str(python), "-m", "turnscore_bench.servers.bare_runtime", str(rows.graph), str(cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, job: str, mix: str, turns: Sequence[BenchTurn]) -> dict[str, Any]:
        """What `bare_runtime` answers to the job. Raises ValueError where it has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._turns_file.write_text(json.dumps(self._rows.of(turns)))
        self._process.stdin.write(json.dumps({"job": job, "mix": mix, "turns": str(self._turns_file)}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
