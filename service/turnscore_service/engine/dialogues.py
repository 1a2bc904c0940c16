"""Dialogues as the engine takes them, and what it returns for each. No text is in a result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_wire import DialogueAggregate, ErrorDetail, Score, Turn


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The turns that were said, oldest first; `id` is the caller's, and comes back with the result."""

    id: str
    turns: Sequence[Turn]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The scores of one system turn, as the service's reply for a dialogue has them."""

    index: int
    """Its place among the dialogue's turns, from 0."""
    scores: Mapping[str, Score]
    errors: Mapping[str, ErrorDetail] = field(default_factory=dict)
    """Why a scorer gave none, by scorer. All of them have one for a system turn without a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueResult:
    """Every system turn's scores, and each scorer's view of the whole dialogue."""

    id: str
    turns: list[TurnResult] = field(default_factory=list)
    aggregates: Mapping[str, DialogueAggregate] = field(default_factory=dict)
    error: str | None = None
    """Why nothing of the dialogue was scored; it begins with the field at fault, and names a limit. None otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """A loaded bundle, and all else that can change what it says of a turn."""

    name: str
    version: str
    digest: str
    """SHA-256 over every file of the bundle that can change a score, as `GET /v1/models` has it."""
    graph: str
    """The graph that runs, such as `cpu-int8`."""
    code_version: str
    """Distribution and version of the code that scores, and of its runtime."""
    threshold: float | None
    """Value below which a turn's label is `low`; None where there is no label."""


def identify(loaded: LoadedScorer) -> ModelIdentity:
    """The identity of a loaded scorer."""
    manifest = loaded.bundle.manifest
    return ModelIdentity(
        name=manifest.name,
        version=manifest.version,
        digest=loaded.bundle.digest,
        graph=loaded.variant,
        code_version=loaded.code_version,
        threshold=loaded.threshold,
    )
