"""What every scorer is: turns to packs of token rows, packs to raw scores; and which turns are equal to it."""

import json
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import JsonValue
from turnscore_models.bundle import Bundle
from turnscore_wire import Speaker, TokenCount, Turn

from turnscore_core.errors import InvalidRequestError
from turnscore_core.inference.onnx_backend import Backend
from turnscore_core.kept_vectors import KeptVectors
from turnscore_core.scorers.turn_warnings import CONTEXT_NOT_READ, RESPONSE_CUT

Field = str | int | tuple[str, ...]
Fields = tuple[Field, ...]

FINGERPRINT_BYTES = 12  # two of the parts that one turn can have share a fingerprint with probability 2^-96


def pack_fields(fields: Iterable[Field]) -> bytes:
    """The fields as bytes: type, length and content of each, in order. An int must fit 64 bits."""
    return b"".join(map(_pack_field, fields))


def fingerprint(fields: Iterable[Field]) -> bytes:
    """`FINGERPRINT_BYTES` bytes that stand for the fields."""
    return blake2b(pack_fields(fields), digest_size=FINGERPRINT_BYTES).digest()


def context_fields(context: Sequence[Turn]) -> Fields:
    """Everything of a context: who spoke, and the texts."""
    return tuple(map(attrgetter("speaker"), context)), tuple(map(attrgetter("text"), context))


def count_chars(fields: Iterable[Field]) -> int:
    chars = 0
    for each in fields:
        if isinstance(each, tuple):
            chars += sum(map(len, each))
        elif isinstance(each, str):
            chars += len(each)
    return chars


def _pack_field(field: Field) -> bytes:
    if isinstance(field, str):
        content = field.encode()
        return b"s%d:%b" % (len(content), content)
    if isinstance(field, tuple):
        # Lengths first and all texts in one piece: a context of a thousand turns is packed without a loop in Python.
        content = "".join(field).encode()
        lengths = struct.pack(f"<{len(field)}I", *map(len, field))
        return b"t%d:%b%d:%b" % (len(field), lengths, len(content), content)
    return b"i" + struct.pack("<q", field)


@lru_cache(maxsize=4096)
def count_tokens(used: int, dropped: int, truncated: bool | None = None) -> TokenCount:  # for the cache
    """So many tokens. Without `truncated` that field counts as not set, and a conversation's messages leave it out."""
    if truncated is None:
        return TokenCount(used=used, dropped=dropped)
    return TokenCount(used=used, dropped=dropped, truncated=truncated)


NO_TOKENS = count_tokens(0, 0)
WHOLE = b""  # the fingerprint of a score that is one fragment
WHOLE_SCORE = (WHOLE,)  # the fragments of such a score; one object, by which it is known

TokenRow = tuple[int, ...]
# Suffix of a detail that is another detail's percentile among the bundle's reference turns.
PERCENTILE_SUFFIX = "_percentile"


def interpolate(value: float, points: Sequence[float]) -> float:
    """Where the value lies among ascending points, from 0 to the last one's place; linear between two.

    What numpy.interp says of one value, to the last bit, in a tenth of the time.
    """
    place = bisect_right(points, value) - 1
    if place < 0:
        return 0.0
    if place == len(points) - 1 or points[place] == value:
        return float(place)
    slope = 1.0 / (points[place + 1] - points[place])
    return slope * (value - points[place]) + place


@dataclass(frozen=True, slots=True)
class TurnToScore:
    """One turn with the turns before it, oldest first. `response` is the text of its scorer's speaker."""

    context: Sequence[Turn]
    response: str
    _: KW_ONLY
    options: object = None  # the caller's options, as the scorer's `read_options` returned them
    asked: Mapping[str, JsonValue] = field(default_factory=dict)  # the caller's options as they were sent
    # Whether text that the scorer reads in part was left out already, so that its tokens are not counted.
    is_cut: bool = False
    # Whether any of it was of the response, where the scorer warns of that: a score kept for the same text does not.
    is_response_cut: bool = False

    def trimmed(
        self, context: Sequence[Turn], response: str, *, is_cut: bool, is_response_cut: bool = False
    ) -> "TurnToScore":
        is_response_cut = is_response_cut or self.is_response_cut
        is_cut = is_cut or is_response_cut or self.is_cut
        return TurnToScore(
            context, response, options=self.options, asked=self.asked, is_cut=is_cut, is_response_cut=is_response_cut
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPack:
    """Turns as the model will see them, computed together: rows of token ids, special tokens included.

    Most scorers make one pack per turn; one that can share work between the turns of a dialogue packs several.
    """

    rows: tuple[TokenRow, ...]
    # The places, among the turns given to `encode`, that this pack answers, in the order of its scores. None of a pack
    # that `read_ahead` made.
    answers: tuple[int, ...]
    tokens: tuple[TokenCount, ...]  # tokens used and dropped, one for each answer
    structure: Any = None  # whatever else the pack's own scorer needs to lay it out; no other module reads it
    pieces: int = 1  # in how many packs each of its turns is answered; `Scorer.merge` puts several together
    # Of turnscore_core.scorers.turn_warnings, for each answer; empty if there are none.
    warnings: tuple[tuple[str, ...], ...] = ()
    # The scorer of each answer, where several share the pass (`Scorer.pass_key`); empty: the one that made the pack.
    scorers: "tuple[Scorer, ...]" = ()

    @property
    def width(self) -> int:
        return max(map(len, self.rows))

    @property
    def real_tokens(self) -> int:
        return sum(map(len, self.rows))


def pack_turn(
    place: int,
    rows: tuple[TokenRow, ...],
    dropped: int,
    *,
    context_read: bool,
    response_read: bool,
    warnings: tuple[str, ...] = (),
    structure: Any = None,
) -> TokenPack:
    """The pack of one turn, of whose tokens so many are in none of the rows.

    Whether the turn before the response, and the response, were read whole stands before the scorer's own `warnings`.
    """
    count = count_tokens(sum(map(len, rows)), dropped)
    warnings = (CONTEXT_NOT_READ,) * (not context_read) + (RESPONSE_CUT,) * (not response_read) + warnings
    return TokenPack(rows=rows, answers=(place,), tokens=(count,), structure=structure, warnings=(warnings,))


@dataclass(slots=True)
class RawScore:
    """A scorer's result for one turn: its paper's value, and the value's parts."""

    value: float
    details: dict[str, float] = field(default_factory=dict)
    _: KW_ONLY
    # The scorer's own, where the bundle's calibration curve does not fit what was asked; None leaves it to that.
    percentile: float | None = None
    # False where no reference turn was scored this way: the reply then carries no percentile and no label.
    is_comparable: bool = True
    # The response's vector, from a scorer with a `vector_width`: little-endian float32, of length 1.
    vector: bytes | None = None
    tokens: TokenCount = NO_TOKENS  # those it was read from: its pack's, which are copied here when it leaves the batch
    warnings: tuple[str, ...] = ()  # the scorer's own; its pack's are put before them likewise


class Scorer:
    """What scorers inherit. All methods may be called from any thread.

    What equals in `inputs_of` and `fragments_of` has equal scores. Most scores are one fragment, by which they are kept
    and found again; FED's are one a quality, so that a turn scored on eighteen qualities answers for any three.
    """

    KIND: ClassVar[str]
    speaker: Speaker = "system"  # whose turns it scores
    # Numbers in the vectors of one that compares texts for /v1/similarity, and is asked of no turn; else 0.
    vector_width: int = 0
    # Whether turns that are encoded together are computed together, so that those of a request have to be.
    shares_passes: bool = False
    # Equal for scorers of which any makes the packs of all and answers for all from one pass; empty for others.
    pass_key: str = ""
    # Details that are probabilities of something a turn may show, and from where on it does.
    signal_thresholds: Mapping[str, float] = MappingProxyType({})
    reason_heads: Sequence[str] = ()  # names of `details` with percentiles, of which a caller may be told as reasons
    # The most that it takes of each thing in its options that is counted, by a name for callers.
    option_limits: Mapping[str, int] = MappingProxyType({})

    def __init__(self, bundle: Bundle, backend: Backend) -> None: ...

    def read_options(self, options: Mapping[str, JsonValue]) -> object:
        """The options as `TurnToScore.options` carries them; those left out take their defaults.

        Raises InvalidRequestError, with the option's name as `field`, where one is wrong or unknown: by default, for
        any.
        """
        for name in options:
            raise InvalidRequestError(f"{self.KIND} has no such option", field=name)
        return None

    def trim(self, turn: TurnToScore) -> TurnToScore:
        """The turn without what the scorer cannot read, in time that the rest of its text does not lengthen.

        All other methods see only that. Scores it as the whole turn would be, but for the rule of
        turnscore_core.scorers.history; trimming twice changes nothing.
        """
        return turn

    def inputs_of(self, turn: TurnToScore) -> Fields:
        """Everything of the turn and its options that can change its score or its token counts, before tokenizing.

        Without what only the fragments depend on. By default everything, with the options as they were sent.
        """
        return (*context_fields(turn.context), turn.response, json.dumps(dict(turn.asked)))

    def is_planned(self, turn: TurnToScore) -> bool:
        """Whether `encode` takes no longer than the turn's text: False where a question has to be planned first."""
        return True

    def max_turn_tokens(self, token_limit: int) -> int:
        """The most tokens that one turn's score is read from, where one row has `token_limit` at most."""
        return token_limit

    def estimate_tokens(self, turn: TurnToScore) -> int:
        """Tokens the turn may cost, cheaply and before tokenizing; more rather than fewer."""
        raise NotImplementedError

    def encode(self, turns: Sequence[TurnToScore]) -> list[TokenPack]:
        """The turns as packs of token rows, cut to what the model takes; each is answered by one pack, or by `pieces`.

        Raises InvalidRequestError, as `read_options` does, for options of which only their tokens say that they are
        too large.
        """
        raise NotImplementedError

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        """The scores of a batch: for each pack in order, one for each of its answers.

        A turn's score does not depend on its neighbours in the batch, but for the last digits: docs/api.md.
        """
        raise NotImplementedError

    def for_queue(self, pack: TokenPack) -> TokenPack:
        """The pack for `score`, whose rows are as long as a queue is to count them: shorter where they are kept."""
        return pack

    def read_ahead(self, turn: TurnToScore) -> TokenPack | None:
        """A pack that answers no turn, for `score`: of the context's latest turn, before its response is there.

        None where the scorer keeps nothing of it. The turn's own response does not count.
        """
        return None

    def keep_vectors(self, kept: KeptVectors) -> None:
        """From now on may keep there what it computes of texts, and use what it finds; no score changes by a bit."""
        return

    def merge(self, pack: TokenPack, pieces: Sequence[RawScore]) -> RawScore:
        """The turn's score, of what `score` gave for each of its packs, in any order; `pack` is one of them."""
        raise NotImplementedError

    def counts_in_dialogue(self, turn: TurnToScore) -> bool:
        """Whether the turn is one the paper takes a dialogue's score over."""
        return True

    def fragments_of(self, turn: TurnToScore) -> tuple[bytes, ...]:
        """A fingerprint for each fragment of the turn's score, over all that the fragment alone depends on."""
        return WHOLE_SCORE

    def narrow(self, turn: TurnToScore, places: Sequence[int]) -> tuple[TurnToScore, Sequence[int]]:
        """The turn asking for these fragments alone, and which that gives: more where that changed their values."""
        return turn, (0,)

    def split(self, turn: TurnToScore, whole: RawScore) -> Sequence[RawScore]:
        """The fragments of a score, in the order of `fragments_of`."""
        return (whole,)

    def join(self, turn: TurnToScore, fragments: Sequence[RawScore]) -> RawScore:
        """The score of these fragments, which is bit for bit the one that they were split from."""
        [whole] = fragments
        return whole
