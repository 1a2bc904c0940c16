"""Engines around fake scorers, and dialogues for them."""

from typing import Any

from turnscore_core.dialogues import DialogueResult
from turnscore_core.engine import Dialogue, Engine
from turnscore_wire import Turn

from support.fakes import loaded_fake


def engine_of(*, models: Any = (), **given: Any) -> Engine:
    """An engine of those scorers."""
    scorers = {name: given.pop(name) for name in ("fake", "other", "encoder") if name in given}
    loaded = {name: loaded_fake(scorer, name) for name, scorer in scorers.items()}
    return Engine(models, load=lambda _: loaded, **given)


def dialogue(id_: str, *texts: str) -> Dialogue:
    """The user speaks first."""
    turns = [Turn(speaker="system" if place % 2 else "user", text=text) for place, text in enumerate(texts)]
    return Dialogue(id_, turns)


def values(result: DialogueResult, scorer: str = "fake") -> list[float]:
    """The values of its turns."""
    return [turn.scores[scorer].value for turn in result.turns]
