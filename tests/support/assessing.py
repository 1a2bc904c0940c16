"""Ratings made up here."""

from typing import Any

from simulate_reports import simulate_study as make_study

__all__ = ["make_study", "published_row"]


def published_row(system: str, worker: str = "w", **ratings: float) -> dict[str, Any]:
    """A conversation in the form in which the published ratings lie."""
    names = ("interesting", "fun", "consistent", "fluent", "topic", "robotic", "repetitive")
    return {
        "worker": worker,
        "hit": "h",
        "position": 0,
        "model": system,
        "topic": [{"round": 0, "topic": "dogs", "attitude": "like"}],
        "ratings": {name: ratings.get(name, 50) for name in names},
        "turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}],
    }
