"""What FED saves on a dialogue: every system turn in one row, against a pass a turn. Times and counts, no weights."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnscore_core.inference.onnx_backend import Backend
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch, FollowUpTree

from turnscore_bench.fed.bench import EOS_ID, FedBench, Graph
from turnscore_bench.fed.ways import Timing, Way, time_alternating
from turnscore_bench.fed.work import count_operations

ALL, TURN_LEVEL = 18, 8
"""FED's qualities, and the first of them, which are asked of turns; the others are asked of whole dialogues."""
# Chosen. Measured with GPT-2's tokenizer: a turn of five public sets has 7 to 14 tokens on average.
TURN_TOKENS = 16
SHORT_TURN_TOKENS = 9
"""Measured: the median in DSTC9's interactive dialogues, and in the human-assessment ones."""
LONG_TURN_TOKENS = 48
"""Chosen: with twenty such turns and a follow-up the window of 1,024 is full."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A dialogue whose every second turn is the system's, and what is asked of those."""

    qualities: int
    turns: int
    turn_tokens: int = TURN_TOKENS
    with_context: bool = False
    """By the whole-sequence loss, for which the context's tokens have a loss too."""
    qualities_at_end: int | None = None
    """Asked of the last turn instead, where other than `qualities`."""
    graph: Graph = "fp32"


SWEEP = tuple(
    Setting(qualities=qualities, turns=turns) for qualities in (1, TURN_LEVEL, ALL) for turns in (4, 10, 20, 40)
)
OTHERS = (
    *(Setting(qualities=qualities, turns=20, turn_tokens=SHORT_TURN_TOKENS) for qualities in (TURN_LEVEL, ALL)),
    *(Setting(qualities=qualities, turns=20, turn_tokens=LONG_TURN_TOKENS) for qualities in (TURN_LEVEL, ALL)),
    *(Setting(qualities=qualities, turns=20, with_context=True) for qualities in (TURN_LEVEL, ALL)),
    *(Setting(qualities=qualities, turns=20, graph="int8") for qualities in (TURN_LEVEL, ALL)),
    Setting(qualities=TURN_LEVEL, turns=20, qualities_at_end=ALL),
)


@dataclass(frozen=True, kw_only=True)
class DialogueTiming:
    """A dialogue in one row and turn by turn, and how many times less arithmetic the row needs."""

    setting: Setting
    row: Timing
    turn_by_turn: Timing
    work_ratio: float

    @property
    def ratio(self) -> float:
        return self.turn_by_turn.seconds / self.row.seconds


def measure_dialogues(bench: FedBench, settings: Iterable[Setting], rounds: int) -> list[DialogueTiming]:
    """Each setting in ONNX Runtime; row and turn by turn take turns."""
    found = []
    for setting in settings:
        row, turn_by_turn = lay_out(bench, setting)
        backend = bench.graphs[setting.graph]
        ways = {"row": _job(backend, [row]), "turn by turn": _job(backend, turn_by_turn)}
        work = count_operations(turn_by_turn, bench.shape) / count_operations([row], bench.shape)
        timings = time_alternating(ways, rounds, warm_up_rounds=2)  # of a new shape two runs find new memory
        found.append(DialogueTiming(setting=setting, row=timings[0], turn_by_turn=timings[1], work_ratio=work))
    return found


def lay_out(bench: FedBench, setting: Setting) -> tuple[Conversation, list[Conversation]]:
    """The dialogue as one conversation, and as one a system turn; random tokens."""
    size = setting.turn_tokens + 1
    dialogue = tuple(bench.draw_context(setting.turns * size + 1, size))
    starts = range(2 * size + 1, len(dialogue) + 1, 2 * size)
    trees = [bench.tree(setting.qualities) for _ in starts]
    if setting.qualities_at_end is not None:
        trees[-1] = bench.tree(setting.qualities_at_end)
    ends = list(zip(starts, trees, strict=True))
    row = Conversation(dialogue, tuple(_branch(*end) for end in ends), setting.with_context)
    return row, [Conversation(dialogue[: end[0]], (_branch(*end),), setting.with_context) for end in ends]


def _branch(start: int, tree: FollowUpTree) -> Branch:
    return Branch(start, (), tree)


def _job(backend: Backend, conversations: Sequence[Conversation]) -> Way:
    """A pass a conversation; with the tokens of all passes."""
    batches = [FedBatch([each], EOS_ID) for each in conversations]
    return sum(batch.fed_tokens for batch in batches), lambda: [backend.run(batch.feeds()) for batch in batches]
