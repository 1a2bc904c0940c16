"""What every scorer is: text to token rows, token rows to raw scores. The pipeline and the batcher know only this."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from pydantic import JsonValue
from turnscore_models import Bundle
from turnscore_wire import TokenCount, Turn

from turnscore_service.inference.onnx_backend import Backend

TokenRow = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TurnToScore:
    """One system turn with the turns before it, oldest first."""

    context: Sequence[Turn]
    response: str
    options: object = None
    """What the scorer's `read_options` made of the caller's options."""
    asked: Mapping[str, JsonValue] = field(default_factory=dict)
    """The caller's options as they were sent."""


@dataclass(frozen=True, slots=True)
class TokenPack:
    """Turns as the model will see them, computed together: rows of token ids, special tokens included.

    Most scorers make one pack a turn; one that can share work between the turns of a dialogue packs several.
    """

    rows: tuple[TokenRow, ...]
    answers: tuple[int, ...]
    """Which of the turns given to `encode` this pack answers, in the order of its scores."""
    tokens: tuple[TokenCount, ...]
    """Tokens used and dropped, one for each answer."""
    structure: object = None
    """What else the scorer that made the pack needs to lay it out; nobody else looks at it."""

    @property
    def width(self) -> int:
        """Tokens in the longest row."""
        return max(len(row) for row in self.rows)

    @property
    def real_tokens(self) -> int:
        """Tokens in all rows together, without padding."""
        return sum(len(row) for row in self.rows)


@dataclass(frozen=True, slots=True)
class RawScore:
    """What a scorer makes of one turn: its paper's value, and the parts it was made of."""

    value: float
    details: dict[str, float] = field(default_factory=dict)
    percentile: float | None = None
    """The scorer's own, where the bundle's calibration curve does not fit what was asked; None leaves it to that."""
    is_comparable: bool = True
    """False where no reference turn was scored this way: the reply then carries no percentile."""


class Scorer(Protocol):
    """A loaded scorer. All methods may be called from any thread.

    One that reads less than everything of a turn also says what, by `inputs_of`, and one whose score is made of
    pieces which pieces: the protocols of turnscore_service.scorers.parts.
    """

    KIND: ClassVar[str]

    def __init__(self, bundle: Bundle, backend: Backend) -> None: ...

    def read_options(self, options: Mapping[str, JsonValue]) -> object:
        """The options as `TurnToScore.options` carries them; those left out take their defaults.

        Raises InvalidRequestError, with the option's name as `field`, where one is wrong or unknown.
        """

    def estimate_tokens(self, turn: TurnToScore) -> int:
        """Tokens the turn may cost, cheaply and before tokenising; more rather than fewer."""

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """The turns as packs of token rows, cut to what the model takes; each turn is answered by one pack."""

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """The scores of a batch: for each pack in order, one for each of its answers.

        A turn's score does not depend on its neighbours in the batch.
        """

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        """Whether the turn is one the paper takes a dialogue's score over."""
