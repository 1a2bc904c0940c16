"""The papers' other systems as `turnscore-train baselines --rows` measured them on the same sets. Measures nothing."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROWS = Path(__file__).with_name("baselines.json")
"""Committed beside the published figures; not there until they were trained."""
MARK = "†"
"""Behind the name of a row that is not of this run."""


@dataclass(frozen=True, kw_only=True)
class TrainedBaselines:
    """Figures by set and by system, of sets of as many items."""

    sets: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    items: Mapping[str, int] = field(default_factory=dict)
    command: str = ""
    date: str = ""

    def of(self, items: Mapping[str, int]) -> "TrainedBaselines":
        """Those of these sets alone; of a set with other items nothing is known."""
        same = {name: found for name, found in self.sets.items() if self.items.get(name) == items.get(name, -1)}
        return replace(self, sets=same)

    @property
    def names(self) -> list[str]:
        """Every system, in order."""
        return list(dict.fromkeys(name for found in self.sets.values() for name in found))

    def agreement(self, set_name: str, name: str) -> float:
        """Spearman's rho, or the area under the ROC curve; NaN where it was not asked about the set."""
        found = self.sets.get(set_name, {}).get(name)
        value = None if found is None else found["agreement"][0]
        return math.nan if value is None else float(value)

    @property
    def note(self) -> str:
        """What the mark means."""
        return (
            f"{MARK} Trained and measured by `{self.command}` on {self.date}, not by this run: the same turns, but "
            f"none of dialogues that the system was trained on.{self._few()} "
            "[baselines.md](baselines.md) has the intervals."
        )

    def _few(self) -> str:
        """Who was asked about less than half as many turns as others: a slow one."""
        turns = {
            name: max(found[name].get("n", 0) for found in self.sets.values() if name in found) for name in self.names
        }
        few = [name for name, count in turns.items() if 2 * count < max(turns.values())]
        return f" {', '.join(few)}: at most {max(turns[name] for name in few)} turns a set." if few else ""


def read_trained_baselines(path: Path = ROWS) -> TrainedBaselines:
    """Those of the file; none where it is not there."""
    if not path.exists():
        return TrainedBaselines()
    document = json.loads(path.read_text(encoding="utf-8"))
    return TrainedBaselines(
        sets=document["sets"], items=document["items"], command=document["command"], date=document["date"]
    )
