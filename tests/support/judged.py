"""Judged dialogues made up here, and a scorer without a model that finds their qualities."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from turnscore_core.scorers.scorer import RawScore, TokenPack, TurnToScore
from turnscore_wire import TokenCount

from support.fakes import FakeScorer


class OracleScorer(FakeScorer):
    """`value` is the number that ends a response: a perfect scorer. Packs the turns of a dialogue, last one first."""

    KIND: ClassVar[str] = "oracle"

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        packs = []
        for start in range(0, len(turns), 2):
            places = range(start, min(start + 2, len(turns)))[::-1]
            rows = tuple((int(turns[place].response.split()[-1]), len(turns[place].context)) for place in places)
            packs.append(
                TokenPack(rows=rows, answers=tuple(places), tokens=tuple(TokenCount(used=2, dropped=0) for _ in places))
            )
        return packs[::-1]

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        return [
            RawScore(row[0] / 100, {"worse": -row[0] / 100, "earlier": -float(row[1])})
            for pack in batch
            for row in pack.rows
        ]


def build_judged(number: int, *, pairs: int = 4, system: str | None = None, quality: float | None = None) -> Any:
    """A row that the system opens; its first turn is not judged. Each response ends with 100 times its quality."""
    generator = random.Random(number)
    turns: list[dict[str, Any]] = [{"speaker": "system", "text": f"hello {generator.randrange(100)}"}]
    for _ in range(pairs):
        found = generator.randrange(100)
        words = ["word"] * generator.randrange(1, 9)
        turns.append({"speaker": "user", "text": "and?"})
        turns.append({"speaker": "system", "text": " ".join([*words, str(found)]), "quality": found / 100})
    row = {"id": f"d{number}", "system": system, "turns": turns, "quality": quality}
    return {name: value for name, value in row.items() if value is not None}


def write_judged(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
