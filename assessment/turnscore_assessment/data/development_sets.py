"""The development sets: turns judged by people, by set, from a data folder. Reads; measures nothing."""

from pathlib import Path

from turnscore_assessment.data.rated_turns import RatedTurn, read_dbdc3, read_rated_turns, read_thumbs

RATINGS_FILE, THUMBS_FILE = "turn_ratings.jsonl.gz", "convai2017.jsonl.gz"
DBDC3_FILE, ADVERSARIAL_FILE = "dbdc3_dev.jsonl.gz", "adversarial_responses.jsonl.gz"
ADVERSARIAL_KINDS = ("relevant", "random", "adversarial")


def read_development_sets(folder: Path) -> dict[str, list[RatedTurn]]:
    """The rated turns by set, those fitted on apart, DBDC3's development turns, and ConvAI's thumbs."""
    found: dict[str, list[RatedTurn]] = {}
    if (folder / RATINGS_FILE).exists():
        for turn in read_rated_turns(folder / RATINGS_FILE):
            found.setdefault(f"{turn.set_name} ({_part(turn)})", []).append(turn)
    if (folder / THUMBS_FILE).exists():
        for turn in read_thumbs(folder / THUMBS_FILE):
            found.setdefault(f"{turn.set_name} ({_part(turn)})", []).append(turn)
    if (folder / DBDC3_FILE).exists():
        found["dbdc3"] = read_dbdc3(folder / DBDC3_FILE)
    return found


def _part(turn: RatedTurn) -> str:
    return "fitted on" if turn.is_fitted_on else "chosen on"
