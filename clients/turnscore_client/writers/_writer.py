"""The writer: what all writers share, and which there are by name."""

from importlib import import_module
from typing import Protocol

from turnscore_client._background import Scored
from turnscore_client.integrations._options import TurnIds
from turnscore_client.writers._entries import ScoreEntry, turn_entries

WRITERS = {
    "langfuse": "langfuse_writer:LangfuseWriter",
    "langsmith": "langsmith_writer:LangSmithWriter",
    "mlflow": "mlflow_writer:MlflowWriter",
    "opik": "opik_writer:OpikWriter",
    "phoenix": "phoenix_writer:PhoenixWriter",
}


class ScoreWriter(Protocol):
    """Writes entries to a tool. An integration calls it with each outcome; one that failed writes nothing."""

    def write(self, entry: ScoreEntry) -> None:
        """Writes one entry, or raises what the tool's client raises; an entry without a place in the tool is left."""

    def close(self) -> None:
        """Returns when the tool has what was written."""

    def __call__(self, scored: Scored) -> None:
        """Writes the scores of a turn."""
        ids = scored.tag if isinstance(scored.tag, TurnIds) else TurnIds()
        for entry in turn_entries(scored.reply.scores, ids) if scored.reply is not None else ():
            self.write(entry)


def open_writer(name: str) -> ScoreWriter:
    """The writer with that name, set up by its tool's environment variables.

    Raises ValueError for a name that there is not, ImportError, naming the extra, where its tool is not installed.
    """
    if name not in WRITERS:
        raise ValueError(f"there is no writer {name!r}; there are {', '.join(sorted(WRITERS))}")
    module, _, kind = WRITERS[name].partition(":")
    opened: ScoreWriter = getattr(import_module(f"turnscore_client.writers.{module}"), kind)()
    return opened
