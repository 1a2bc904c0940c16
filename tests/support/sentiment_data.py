"""Small stand-ins for the sets of dialogues that the sentiment/stop model is trained and measured on."""

import random
from pathlib import Path

from support.exporter_data import build_dialogue, build_sentence, write_rows

ANSWERS = ("no", "i like it", "what do you mean ?", "not really , i never did", "bye", "you are a stupid film")


def build_turns(number: int, turns: int) -> list[dict[str, str]]:
    """User and system in turns, the user first; the system asks something every now and then."""
    generator = random.Random(number)
    return [
        {
            "speaker": ("user", "system")[place % 2],
            "text": build_sentence(generator, 2 + (number + place) % 5) + (" ?" if place % 4 == 1 else "")
            if place % 2 or place == 0
            else generator.choice(ANSWERS),
        }
        for place in range(turns)
    ]


def write_sentiment_data(folder: Path) -> Path:
    """Every file that the default descriptions name, and the development set, small."""
    write_rows(
        folder / "dstc9_interactive.jsonl.gz",
        [{"id": f"d{number}", "system": number % 3, "turns": build_turns(number, 8)} for number in range(50)],
    )
    write_rows(
        folder / "convai2017.jsonl.gz",
        [build_dialogue(number, has_bot=number % 3 != 0, rating=3) for number in range(90)],
    )
    for name in ("free_run1", "free_run2", "icebreaker"):
        for outcome in ("pass", "fail"):
            rows = [
                {"model": ("A", "QualityControl")[number % 2], "turns": build_turns(number, 7)} for number in (1, 2)
            ]
            write_rows(folder / "human_assessment" / f"{name}_{outcome}.jsonl.gz", list(rows))
    generator = random.Random(1)
    texts = [{"source": "people", "turns": [build_sentence(generator, 4) for _ in range(6)]} for _ in range(5)]
    write_rows(folder / "dialogue_text.jsonl.gz", list(texts))
    votes = [{"O": 30 - number, "T": 0, "X": number} for number in range(30)]
    judged = [
        {
            "id": f"j{number}",
            "system": "IRIS",
            "turns": [
                {**turn, "breakdown_votes": votes[(number + place) % 30]} if turn["speaker"] == "system" else turn
                for place, turn in enumerate(build_turns(number, 6))
            ],
        }
        for number in range(10)
    ]
    write_rows(folder / "dbdc3_dev.jsonl.gz", list(judged))
    return folder
