"""Entries: each scorer's score as evaluation tools take scores, at the level of a turn or of a session. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from turnscore_wire import DialogueAggregate, Score

from turnscore_client.integrations._options import TurnIds

PREFIX = "turnscore."


@dataclass(frozen=True, kw_only=True)
class ScoreEntry:
    """One score with a name, for one place. It holds no text of the dialogue."""

    name: str
    """`turnscore.` and the scorer's."""
    value: float
    label: str | None
    explanation: str
    """What the value means, in a sentence."""
    ids: TurnIds
    is_session: bool = False
    """Whether it is the mean over a dialogue, for the session of `ids`."""
    metadata: Mapping[str, str | float | int | bool] = field(default_factory=dict)
    """What else is known: the model, the percentile, warnings."""

    @property
    def labelled(self) -> dict[str, str | float | int | bool]:
        """The metadata with the label, for tools that have no place of its own for it."""
        return {**self.metadata, **({"label": self.label} if self.label else {})}

    @property
    def key(self) -> str:
        """The same for the same scorer and place, so that who writes twice changes, and does not add."""
        place = (self.ids.session_id,) if self.is_session else (self.ids.trace_id, self.ids.span_id)
        return hashlib.sha256(repr((self.name, self.is_session, place)).encode()).hexdigest()[:32]


def turn_entries(scores: Mapping[str, Score], ids: TurnIds) -> Iterator[ScoreEntry]:
    """The entries of one turn; none where the ids name no place for it."""
    if ids.trace_id is None and ids.span_id is None:
        return
    for name, score in scores.items():
        known = {
            "turnscore.model": score.model,
            "turnscore.percentile": score.percentile,
            "turnscore.warnings": ",".join(score.warnings) or None,
            "turnscore.stand_in": score.stand_in or None,
        }
        yield ScoreEntry(
            name=PREFIX + name,
            value=score.value,
            label=score.label,
            explanation=_explain(score.percentile),
            ids=ids,
            metadata={key: value for key, value in known.items() if value is not None},
        )


def dialogue_entries(aggregates: Mapping[str, DialogueAggregate], ids: TurnIds) -> Iterator[ScoreEntry]:
    """The entries of a whole dialogue; none where no session is named."""
    if ids.session_id is None:
        return
    for name, whole in aggregates.items():
        known = {
            "turnscore.min": whole.min,
            "turnscore.max": whole.max,
            "turnscore.turns": whole.turns,
            "turnscore.percentile_mean": whole.percentile_mean,
        }
        yield ScoreEntry(
            name=PREFIX + name,
            value=whole.mean,
            label=None,
            explanation=f"mean of {whole.turns} turns, the lowest {whole.min:.4g}",
            ids=ids,
            is_session=True,
            metadata={key: value for key, value in known.items() if value is not None},
        )


def _explain(percentile: float | None) -> str:
    return "" if percentile is None else f"{percentile:.0f} of 100 reference turns score lower"
