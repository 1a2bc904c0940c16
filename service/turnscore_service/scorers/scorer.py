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


@dataclass(frozen=True, slots=True)
class EncodedTurn:
    """A turn as the model will see it: one or more rows of token ids, special tokens included."""

    rows: tuple[TokenRow, ...]
    tokens: TokenCount

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


class Scorer(Protocol):
    """A loaded scorer. All methods may be called from any thread."""

    KIND: ClassVar[str]

    def __init__(self, bundle: Bundle, backend: Backend) -> None: ...

    def check_options(self, options: Mapping[str, JsonValue]) -> None:
        """Raises InvalidRequestError, with the option's name as `field`, where the scorer has no such option."""

    def estimate_tokens(self, turn: TurnToScore) -> int:
        """Tokens the turn may cost, cheaply and before tokenising; more rather than fewer."""

    def encode(self, turns: Sequence[TurnToScore]) -> list[EncodedTurn]:
        """The turns as token rows, cut to what the model takes."""

    def score(self, batch: Sequence[EncodedTurn]) -> list[RawScore]:
        """Scores of one batch, in its order; a turn's score does not depend on its neighbours."""

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        """Whether the turn is one the paper takes a dialogue's score over."""
