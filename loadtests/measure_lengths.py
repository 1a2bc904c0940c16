"""Measures how long real dialogues and their turns are, and writes the table that the load tests draw from.

Keeps lengths alone, no text. `python loadtests/measure_lengths.py convai2017.jsonl.gz dstc9_interactive.jsonl.gz`
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

TABLE = Path(__file__).parent / "turnscore_load" / "dialogue_lengths.toml"
# Percent. The longest 0.1 % are left out: single outliers (a pasted text of 611 words) would outweigh the rest.
LEVELS = (0, 2, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 75, 80, 85, 90, 95, 98, 99, 99.5, 99.9)

_Turns = list[tuple[str, int]]


def read_turns(file: Path) -> Iterator[_Turns]:
    """Speaker (`user`, `system`) and words of each turn, of every dialogue between a person and a bot."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            dialogue: dict[str, Any] = json.loads(line)
            roles = {"human": "user", "bot": "system"}
            names = {name: roles[kind] for name, kind in dialogue.get("participants", {}).items()}
            if names and len(set(names.values())) < 2:
                continue  # two people
            yield [
                (names.get(turn["speaker"], turn["speaker"]), len(turn["text"].split())) for turn in dialogue["turns"]
            ]


def _rows(title: str, lengths: Sequence[int]) -> list[str]:
    cut = np.percentile(lengths, LEVELS)
    kept = [each for each in lengths if each <= cut[-1]]
    quantiles = ", ".join(f"{each:g}" for each in cut.round(1))
    return [f"[{title}]", f"counted = {len(lengths)}", f"mean = {np.mean(kept):.2f}", f"quantiles = [{quantiles}]", ""]


def main(files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False)]) -> None:
    """Writes the table from these files of dialogues."""
    dialogues = [turns for file in files for turns in read_turns(file)]
    answered = [turns for turns in dialogues if any(speaker == "system" for speaker, _ in turns)]
    names = ", ".join(sorted(file.name.split(".")[0] for file in files))
    lines = [
        "# How long dialogues between a person and a bot are; made by loadtests/measure_lengths.py. Holds no text.",
        f"# Measured in {names}: {len(answered)} dialogues with a system turn.",
        "# Words are what blanks separate. Means leave out what is beyond the last quantile.",
        f"levels_percent = [{', '.join(f'{each:g}' for each in LEVELS)}]",
        "",
        *_rows("system_turns_per_dialogue", [sum(s == "system" for s, _ in turns) for turns in answered]),
        *_rows("words_per_user_turn", [n for turns in answered for s, n in turns if s == "user" and n]),
        *_rows("words_per_system_turn", [n for turns in answered for s, n in turns if s == "system" and n]),
    ]
    TABLE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
