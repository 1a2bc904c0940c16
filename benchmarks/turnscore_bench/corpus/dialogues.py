"""Corpora to measure with: seeded dialogues as long as real ones, made of no real text."""

import json
from collections.abc import Iterator
from pathlib import Path

from turnscore_core.dialogues import Dialogue
from turnscore_load.traffic import Traffic, TrafficSettings
from turnscore_wire import Turn


def write_dialogues(path: Path, turns: int) -> int:
    """Writes whole dialogues of at least so many system turns together, a line each; how many system turns there are.

    The same number writes the same file. One that is there is taken as it is.
    """
    counted = path.with_suffix(".turns")
    if not counted.exists():
        written = 0
        with path.open("w", encoding="utf-8") as file:
            for number, said in enumerate(_dialogues()):
                if written >= turns:
                    break
                file.write(json.dumps({"id": str(number), "turns": said}) + "\n")
                written += len(said) // 2
        counted.write_text(str(written))
    return int(counted.read_text())


def read_dialogues(path: Path) -> list[Dialogue]:
    """As the engine takes them."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [Dialogue(row["id"], [Turn(**turn) for turn in row["turns"]]) for row in rows]


def _dialogues() -> Iterator[list[dict[str, str]]]:
    """User and system in turn."""
    traffic = Traffic(TrafficSettings())
    said: list[dict[str, str]] = []
    while True:
        item = traffic.next_ask().item
        if len(item["context"]) == 1 and said:
            yield said
        said = [*item["context"], {"speaker": "system", "text": item["response"]}]
