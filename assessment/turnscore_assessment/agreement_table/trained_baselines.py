"""The papers' other systems, as `experiments/baselines.py --rows` measured them on the same sets. Measures nothing."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROWS = Path(__file__).with_name("baselines.json")
"""Committed beside the published figures; missing until they are trained."""
MARK = "†"
"""Ends the name of a row that another run measured."""


@dataclass(frozen=True, kw_only=True)
class TrainedBaselines:
    """Figures by set and by system, with the number of items of each set."""

    sets: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    items: Mapping[str, int] = field(default_factory=dict)
    command: str = ""
    date: str = ""

    def of(self, items: Mapping[str, int]) -> "TrainedBaselines":
        """The figures of these sets alone; a set with other items has none."""
        same = {name: found for name, found in self.sets.items() if self.items.get(name) == items.get(name, -1)}
        return replace(self, sets=same)

    @property
    def names(self) -> list[str]:
        """Every system, in order."""
        return list(dict.fromkeys(name for found in self.sets.values() for name in found))

    def agreement(self, set_name: str, name: str) -> float:
        """Spearman's rho, or the AUC; NaN where it was not measured on the set."""
        found = self.sets.get(set_name, {}).get(name)
        value = None if found is None else found["agreement"][0]
        return math.nan if value is None else float(value)

    @property
    def note(self) -> str:
        """A sentence that explains the mark."""
        return (
            f"{MARK} Trained and measured by `{self.command}` on {self.date}, not by this run: the same turns, but "
            f"none of dialogues that the system was trained on.{self._few()} "
            "[models/baselines.md](models/baselines.md) names the systems."
        )

    def _few(self) -> str:
        """The systems that scored less than half as many turns as others."""
        turns = {
            name: max(found[name].get("n", 0) for found in self.sets.values() if name in found) for name in self.names
        }
        few = [name for name, count in turns.items() if 2 * count < max(turns.values())]
        return f" {', '.join(few)}: at most {max(turns[name] for name in few)} turns a set." if few else ""


def read_trained_baselines(path: Path = ROWS) -> TrainedBaselines:
    """The file's figures; none where there is no file."""
    if not path.exists():
        return TrainedBaselines()
    document = json.loads(path.read_text(encoding="utf-8"))
    return TrainedBaselines(
        sets=document["sets"], items=document["items"], command=document["command"], date=document["date"]
    )
