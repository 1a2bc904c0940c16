"""Batches: how large one may be, which turns are worth computing together, and what a computed one says of each."""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from turnscore_core.errors import FailedScoringError, OverloadedError, ScoringError
from turnscore_core.inference.onnx_backend import OutOfMemoryError, padded_width
from turnscore_core.scorers.scorer import RawScore, Scorer, TokenPack

_LOGGER = logging.getLogger("turnscore.scorers")

FIRST_TOKENS = 1024
MOST_CUDA_TOKENS = 65_536  # more tokens per batch keep a GPU no busier and make all callers wait longer
_RECOVERY_SHARE = 1 / 64  # how much a good batch adds to a limit that memory made smaller: it doubles in 45 batches


@dataclass(frozen=True, slots=True)
class WasteLimit:
    """What a batch may cost, as rows x longest^2, compared with what its turns would cost one by one."""

    # As a multiple. Measured on 2 CPUs with an int8 MiniLM, 32 clients: 1.1 costs 1 to 2 % more CPU for turns of 8 to
    # 256 tokens, 1.25 another 3 to 4 %.
    most: float = 1.0
    # What may be added for each run that the batch saves. A run costs a CPU 4,600, and yet turns of one width that meet
    # later save more than unlike turns that go together now (measured likewise: 1,024 costs 5 to 10 % more CPU for
    # turns of 8 to 24 tokens).
    cells_per_run: int = 0


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """Padded tokens that a batch may have at most, and below which its turns are not dealt out to several."""

    # Measured on 2 CPUs with an int8 MiniLM: 512 to 1,024 cost the least CPU per token; 4,096 a third more.
    most_tokens: int = 1024
    least_split_tokens: int = 256  # measured likewise: 256 tokens cost 6 % more CPU than 512
    waste: WasteLimit = WasteLimit()


def cuda_budget(most_tokens: int) -> BatchBudget:
    """A GPU takes several small batches hardly faster than one after the other, so little is dealt out. Chosen."""
    return BatchBudget(
        most_tokens, least_split_tokens=max(FIRST_TOKENS, most_tokens // 8), waste=WasteLimit(1.1, cells_per_run=1024)
    )


def find_most_tokens(
    run: Callable[[int], object], free_bytes: Callable[[], int], may_take_bytes: int, most: int = MOST_CUDA_TOKENS
) -> int:
    """The most tokens, FIRST_TOKENS doubled some times, whose batch takes at most `may_take_bytes` of device memory.

    `run` computes a batch of about that many tokens, of the widest rows there are, and raises OutOfMemoryError where
    memory ends. The runtime keeps what it took, so the batches that follow find it. A batch of FIRST_TOKENS that does
    not fit gives half of that, and so on: some batch must run, and one that fails is halved.
    """
    before = free_bytes()
    tokens = FIRST_TOKENS
    while tokens <= most:
        try:
            run(tokens)
        except OutOfMemoryError:
            return tokens // 2
        taken = before - free_bytes()
        if taken * 2 > may_take_bytes:
            return tokens if taken <= may_take_bytes else tokens // 2
        tokens *= 2
    return tokens // 2


class TokenLimit:
    """The limit in force: halved where memory ended, and slowly given back by batches that fit. Safe in threads."""

    def __init__(self, most_tokens: int, on_shrink: Callable[[], object] = lambda: None) -> None:
        """`on_shrink` is called, in the thread of the batch, each time that memory ended."""
        self.most = most_tokens
        self._on_shrink = on_shrink
        self.tokens = most_tokens  # padded tokens that a batch may have
        self._lock = threading.Lock()

    def shrink(self, failed_tokens: int) -> None:
        """A batch of that many tokens found too little memory."""
        self._on_shrink()
        with self._lock:
            self.tokens = max(1, min(self.tokens, failed_tokens // 2))

    def recover(self) -> None:
        """A batch found enough."""
        with self._lock:
            self.tokens = min(self.most, self.tokens + max(1, int(self.tokens * _RECOVERY_SHARE)))


@dataclass(slots=True, eq=False)
class SizedPack:
    """A pack, and how large it is, looked up once: a queue asks often."""

    pack: TokenPack
    rows: int = field(init=False)
    width: int = field(init=False)  # tokens in the longest row
    padded_width: int = field(init=False)
    real: int = field(init=False)  # tokens without padding
    padded: int = field(init=False)  # tokens with padding, alone
    alone: int = field(init=False)  # what it costs alone: rows x longest^2

    def __post_init__(self) -> None:
        lengths = list(map(len, self.pack.rows))
        self.rows, self.width, self.real = len(lengths), max(lengths), sum(lengths)
        self.padded_width = padded_width(self.width)
        self.padded = self.rows * self.padded_width
        self.alone = self.padded * self.padded_width


def padded_tokens(pack: TokenPack) -> int:
    """What the pack has with padding where it is alone."""
    return SizedPack(pack).padded


def grow_batch(sizes: Sequence[SizedPack], place: int, budget: float, waste: WasteLimit) -> tuple[int, int]:
    """The slice of `sizes`, sorted by width, that makes the largest allowed batch around the one at `place`.

    Takes the nearest in width first, on either side, while the padded tokens are within `budget` and the batch's cost
    (rows x longest^2) is within what `waste` allows.
    """
    first = sizes[place]
    rows, longest, alone = first.rows, first.padded_width, first.alone
    low, high = place, place + 1
    can_go_down, can_go_up = True, True
    while can_go_down or can_go_up:
        gap_below = first.width - sizes[low - 1].width if can_go_down and low > 0 else math.inf
        gap_above = sizes[high].width - first.width if can_go_up and high < len(sizes) else math.inf
        if gap_below == gap_above == math.inf:
            break
        goes_down = gap_below <= gap_above
        other = sizes[low - 1 if goes_down else high]
        all_rows, widest, all_alone = rows + other.rows, max(longest, other.padded_width), alone + other.alone
        pays = max(waste.most * all_alone, all_alone + waste.cells_per_run * (high - low))
        if all_rows * widest <= budget and all_rows * widest**2 <= pays:
            rows, longest, alone = all_rows, widest, all_alone
            low, high = low - goes_down, high + (not goes_down)
        elif goes_down:
            can_go_down = False
        else:
            can_go_up = False
    return low, high


_BUDGET = BatchBudget()


def form_batches(
    packs: Sequence[TokenPack], most_tokens: int = _BUDGET.most_tokens, waste: WasteLimit = _BUDGET.waste
) -> Iterator[list[TokenPack]]:
    """All packs in batches of like width, the widest first. The same packs make the same batches every time."""
    sized = sorted(map(SizedPack, packs), key=attrgetter("width"))
    while sized:
        low, high = grow_batch(sized, len(sized) - 1, most_tokens, waste)
        yield [each.pack for each in sized[low:high]]
        del sized[low:high]


Answer = RawScore | ScoringError  # what a scorer says of a turn, or why it says nothing


@dataclass(slots=True)
class PackCollector:
    """Puts the scores of turns together that several packs answer."""

    scorer: Scorer
    _pieces: dict[int, list[RawScore]] = field(default_factory=dict, init=False)

    def take(self, pack: TokenPack, scores: Sequence[Answer]) -> list[tuple[int, Answer]]:
        """The turns that the pack completes by place, each with its score, tokens and warnings, or its error."""
        found: list[tuple[int, Answer]] = []
        for number, (place, score) in enumerate(zip(pack.answers, scores, strict=True)):
            whole = score
            if isinstance(score, RawScore) and pack.pieces > 1:
                pieces = self._pieces.setdefault(place, [])
                pieces.append(score)
                if len(pieces) < pack.pieces:
                    continue
                try:
                    whole = self.scorer.merge(pack, self._pieces.pop(place))
                except Exception as error:
                    _LOGGER.error("merging failed: %s", type(error).__name__, exc_info=error)
                    whole = to_scoring_error(error)
            if isinstance(whole, RawScore):
                whole.tokens = pack.tokens[number]
                if pack.warnings and (warnings := pack.warnings[number]):
                    whole.warnings = (*warnings, *whole.warnings)
            found.append((place, whole))
        return found


def to_scoring_error(cause: BaseException) -> ScoringError:
    """What failed a pack, as its callers get it."""
    if isinstance(cause, FailedScoringError):
        return cause
    if isinstance(cause, OutOfMemoryError):
        # After which other processes may have given memory back
        return OverloadedError("the device has no memory left for this turn", retry_after_ms=1000)
    return FailedScoringError("the model failed on this turn")
