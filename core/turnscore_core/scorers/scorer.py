"""What every scorer is: text to token rows, token rows to raw scores. The pipeline and the batcher know only this."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

from pydantic import JsonValue
from turnscore_models import Bundle
from turnscore_wire import TokenCount, Turn

from turnscore_core.inference.onnx_backend import Backend

TokenRow = tuple[int, ...]
PERCENTILE_SUFFIX = "_percentile"
"""Suffix of a detail that is another detail's percentile among the bundle's reference turns."""


@dataclass(frozen=True, slots=True)
class TurnToScore:
    """One system turn with the turns before it, oldest first."""

    context: Sequence[Turn]
    response: str
    _: KW_ONLY
    options: object = None
    """The caller's options, as the scorer's `read_options` returned them."""
    asked: Mapping[str, JsonValue] = field(default_factory=dict)
    """The caller's options as they were sent."""
    is_cut: bool = False
    """Whether text that the scorer reads in part was left out already, so that its tokens are not counted."""

    def trimmed(self, context: Sequence[Turn], response: str, *, is_cut: bool) -> "TurnToScore":
        """The turn of which only this is left."""
        return TurnToScore(context, response, options=self.options, asked=self.asked, is_cut=is_cut or self.is_cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPack:
    """Turns as the model will see them, computed together: rows of token ids, special tokens included.

    Most scorers make one pack per turn; one that can share work between the turns of a dialogue packs several.
    """

    rows: tuple[TokenRow, ...]
    answers: tuple[int, ...]
    """The places, among the turns given to `encode`, that this pack answers, in the order of its scores."""
    tokens: tuple[TokenCount, ...]
    """Tokens used and dropped, one for each answer."""
    structure: object = None
    """Whatever else the pack's own scorer needs to lay it out; no other module reads it."""
    pieces: int = 1
    """In how many packs each of its turns is answered: where it is several, the scorer is a MergesPieces."""
    warnings: tuple[tuple[str, ...], ...] = ()
    """Of turnscore_core.scorers.turn_warnings, for each answer; empty if there are none."""

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
    """A scorer's result for one turn: its paper's value, and the value's parts."""

    value: float
    details: dict[str, float] = field(default_factory=dict)
    _: KW_ONLY
    percentile: float | None = None
    """The scorer's own, where the bundle's calibration curve does not fit what was asked; None leaves it to that."""
    is_comparable: bool = True
    """False where no reference turn was scored this way: the reply then carries no percentile and no label."""
    warnings: tuple[str, ...] = ()
    """Warnings about the score: those of its pack, which the computation copies here."""
    vector: bytes | None = None
    """The response's vector, from an EncodesTexts: little-endian float32, of length 1."""


class Scorer(Protocol):
    """A loaded scorer. All methods may be called from any thread.

    One that reads less than everything of a turn also leaves out the rest, by `trim`, and says what counts, by
    `inputs_of`; one whose score is made of pieces says which: the protocols of turnscore_core.scorers.parts.
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
        """The turns as packs of token rows, cut to what the model takes; each is answered by one pack, or by `pieces`.

        Raises InvalidRequestError, as `read_options` does, for options of which only their tokens say that they are
        too large.
        """

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """The scores of a batch: for each pack in order, one for each of its answers.

        A turn's score does not depend on its neighbours in the batch, but for the last digits: docs/api.md.
        """

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        """Whether the turn is one the paper takes a dialogue's score over."""


@runtime_checkable
class MergesPieces(Protocol):
    """A scorer that divides the questions about one turn among several packs, so that none is larger than a batch."""

    def merge(self, pack: TokenPack, pieces: Sequence[RawScore]) -> RawScore:
        """The turn's score, of what `score` gave for each of its packs, in any order; `pack` is one of them."""


@runtime_checkable
class BuildsPlans(Protocol):
    """A scorer that does work for a question, beside the turn's, when it is first asked."""

    def is_planned(self, turn: TurnToScore) -> bool:
        """Whether that is done: then `encode` takes no longer than the turn's text."""


@runtime_checkable
class HasHeads(Protocol):
    """A scorer whose value is made of heads that a caller may be told of as reasons."""

    reason_heads: Sequence[str]
    """Names of `details` that have percentiles."""


@runtime_checkable
class EncodesTexts(Protocol):
    """A scorer that makes vectors of texts: it is asked by /v1/similarity, and of no turn."""

    vector_width: int
    """Numbers in a vector."""


@runtime_checkable
class BoundsOptions(Protocol):
    """A scorer whose options have a size."""

    option_limits: dict[str, int]
    """The most that it takes of each thing that is counted, by a name for callers."""
