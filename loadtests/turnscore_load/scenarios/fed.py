"""Measures what FED costs: the published way and the one pass, alternating in one run, and how the cost grows.

Random weights of DialoGPT-small's shape, since only time is measured. A dialogue's system turns are computed in one
row, and turn by turn; no implementation that computes both exactly can save more than the work allows.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
import torch
import typer
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from transformers import GPT2Config, GPT2LMHeadModel
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.scorers.fed.batch import (
    Branch,
    Conversation,
    FedBatch,
    FedTurn,
    FollowUpTree,
    build_tree,
    share_turns,
)
from turnscore_exporters.fed.bundle import QualityFile, read_qualities
from turnscore_exporters.fed.model import export_graph, export_int8

from turnscore_load.fed_ways import (
    CONTEXT_TURN_TOKENS,
    ROWS_AT_ONCE,
    ModelShape,
    TorchFed,
    Way,
    WayTiming,
    count_operations,
    draw_context,
    parts_of,
    time_alternating,
)  # fmt: skip
from turnscore_load.machine import usable_cpus
from turnscore_load.results import ScenarioResult, table

EOS_ID, VOCABULARY = 50256, 50257  # specified: GPT-2's
CONTEXT_TOKENS = 100
WIDEST_DIALOGUE_TOKENS = 1_000_000  # a dialogue's row is measured whole
CONTEXTS = (25, 50, 100, 200, 400, 800)
QUALITY_COUNTS = (1, 2, 4, 8, 18)
ALL, TURN_LEVEL = 18, 8
"""FED's qualities, and the first of them, which are asked of turns; the others are asked of whole dialogues."""
TURN_TOKENS = 16
"""Chosen. Measured with GPT-2's tokenizer: a turn of five public sets has 7 to 14 tokens on average."""
SHORT_TURN_TOKENS = 9
"""Measured: the median in DSTC9's interactive dialogues, and in the human-assessment ones."""
LONG_TURN_TOKENS = 48
"""Chosen: with twenty such turns and a follow-up the window of 1,024 is full."""

Graph = Literal["fp32", "int8"]


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

    def __str__(self) -> str:
        asked = f"{self.qualities} qualities"
        if self.qualities_at_end is not None:
            asked += f", {self.qualities_at_end} of the last turn"
        loss = ", whole-sequence loss" if self.with_context else ""
        return f"{asked}, {self.turn_tokens} tokens per turn{loss}{'' if self.graph == 'fp32' else f', {self.graph}'}"


SWEEP = [Setting(qualities=qualities, turns=turns) for qualities in (1, TURN_LEVEL, ALL) for turns in (4, 10, 20, 40)]
OTHERS = [
    *(Setting(qualities=each, turns=20, turn_tokens=SHORT_TURN_TOKENS) for each in (TURN_LEVEL, ALL)),
    *(Setting(qualities=each, turns=20, turn_tokens=LONG_TURN_TOKENS) for each in (TURN_LEVEL, ALL)),
    *(Setting(qualities=each, turns=20, with_context=True) for each in (TURN_LEVEL, ALL)),
    *(Setting(qualities=each, turns=20, graph="int8") for each in (TURN_LEVEL, ALL)),
    Setting(qualities=TURN_LEVEL, turns=20, qualities_at_end=ALL),
]


@dataclass(frozen=True, kw_only=True)
class DialogueTiming:
    """A dialogue in one row and turn by turn, and how many times less arithmetic the row needs."""

    setting: Setting
    row: WayTiming
    turn_by_turn: WayTiming
    work_ratio: float

    @property
    def ratio(self) -> float:
        return self.turn_by_turn.seconds / self.row.seconds


class FedBench:
    """One model of DialoGPT-small's shape, as torch and as graphs."""

    def __init__(self, tokenizer: Tokenizer, qualities: QualityFile, folder: Path, threads: int, layers: int) -> None:
        """Writes the graphs into `folder`."""
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        config = GPT2Config(n_layer=layers)
        self.shape = ModelShape(config.n_layer, config.n_embd, config.vocab_size)
        model = GPT2LMHeadModel(config).eval()
        self._torch = TorchFed(model)
        export_graph(model, folder / "fp32.onnx")
        export_int8(folder / "fp32.onnx", folder / "int8.onnx", VOCABULARY)
        self.graphs: dict[Graph, OnnxBackend] = {
            name: OnnxBackend(folder / f"{name}.onnx", threads=threads) for name in get_args(Graph)
        }
        chosen = {name: qualities.qualities[name] for name in qualities.default}
        self._follow_ups = {
            name: [tokenizer.encode(text, add_special_tokens=False).ids for text in (*each.positive, *each.negative)]
            for name, each in chosen.items()
        }
        self._generator = np.random.default_rng(0)

    def compare_ways(self, rounds: int) -> list[WayTiming]:
        """The published way and ours, on one turn with 100 context tokens and all qualities, by the published loss."""
        context = self.draw_context(CONTEXT_TOKENS)
        rows = [[*context, *follow_up] for each in self._follow_ups.values() for follow_up in each]
        tree = self.tree(len(self._follow_ups))
        batch = share([FedTurn(tuple(context), 1)], tree, with_context=True)
        published, ours = sum(map(len, rows)), len(context) + len(tree.ids)
        widths = [max(map(len, part)) * len(part) for part in parts_of(rows)]
        ways: dict[str, Way] = {
            "published: a pass a follow-up, torch": (published, lambda: self._torch.run_published(rows)),
            f"published, {ROWS_AT_ONCE} follow-ups a pass, torch": (sum(widths), lambda: self._torch.run_batched(rows)),
            "one pass, torch": (ours, lambda: self._torch.run_one_pass(batch.feeds())),
            "one pass, ONNX Runtime fp32": (ours, lambda: self.graphs["fp32"].run(batch.feeds())),
            "one pass, ONNX Runtime int8": (ours, lambda: self.graphs["int8"].run(batch.feeds())),
        }
        return time_alternating(ways, rounds)

    def measure_contexts(self, rounds: int) -> list[WayTiming]:
        """One turn, all qualities, contexts of 25 to 800 tokens."""
        tree = self.tree(len(self._follow_ups))
        return self._time_turns({str(each): (self.draw_context(each), tree) for each in CONTEXTS}, rounds)

    def measure_qualities(self, rounds: int) -> list[WayTiming]:
        """One turn, 100 context tokens, 1 to 18 qualities."""
        context = self.draw_context(CONTEXT_TOKENS)
        return self._time_turns({str(each): (context, self.tree(each)) for each in QUALITY_COUNTS}, rounds)

    def measure_dialogues(self, settings: Sequence[Setting], rounds: int) -> list[DialogueTiming]:
        """Each setting in ONNX Runtime; row and turn by turn take turns."""
        found = []
        for setting in settings:
            row, turn_by_turn = self.lay_out(setting)
            backend = self.graphs[setting.graph]
            ways: dict[str, Way] = {}
            for name, conversations in (("row", [row]), ("turn by turn", turn_by_turn)):
                batches = [FedBatch([each], EOS_ID) for each in conversations]
                ways[name] = _passes(backend, batches)
            work = count_operations(turn_by_turn, self.shape) / count_operations([row], self.shape)
            first, second = time_alternating(ways, rounds, warm_up_rounds=2)  # of a new shape two runs find new memory
            found.append(DialogueTiming(setting=setting, row=first, turn_by_turn=second, work_ratio=work))
        return found

    def draw_context(self, tokens: int, turn_tokens: int = CONTEXT_TURN_TOKENS) -> list[int]:
        """Random tokens, a separator first, last and every `turn_tokens`."""
        return draw_context(self._generator, tokens, EOS_ID, turn_tokens)

    def tree(self, count: int) -> FollowUpTree:
        """The tree of the first `count` qualities."""
        chosen = [tuple(each) for name in list(self._follow_ups)[:count] for each in self._follow_ups[name]]
        return build_tree(list(dict.fromkeys(chosen)))

    def lay_out(self, setting: Setting) -> tuple[Conversation, list[Conversation]]:
        """The dialogue as one conversation, and as one a system turn; random tokens."""
        size = setting.turn_tokens + 1
        dialogue = tuple(self.draw_context(setting.turns * size + 1, size))
        starts = range(2 * size + 1, len(dialogue) + 1, 2 * size)
        trees = [self.tree(setting.qualities) for _ in starts]
        if setting.qualities_at_end is not None:
            trees[-1] = self.tree(setting.qualities_at_end)
        branches = [Branch(start, (), tree) for start, tree in zip(starts, trees, strict=True)]
        row = Conversation(dialogue, tuple(branches), setting.with_context)
        return row, [Conversation(dialogue[: each.start], (each,), setting.with_context) for each in branches]

    def _time_turns(self, turns: Mapping[str, tuple[list[int], FollowUpTree]], rounds: int) -> list[WayTiming]:
        ways = {}
        for name, (context, tree) in turns.items():
            batch = share([FedTurn(tuple(context), 1)], tree, with_context=False)
            ways[name] = _passes(self.graphs["fp32"], [batch])
        return time_alternating(ways, rounds)


def _passes(backend: OnnxBackend, batches: Sequence[FedBatch]) -> Way:
    """One after the other; with the tokens of all passes."""
    return sum(batch.fed_tokens for batch in batches), lambda: [backend.run(batch.feeds()) for batch in batches]


def share(turns: Sequence[FedTurn], tree: FollowUpTree, *, with_context: bool) -> FedBatch:
    """The turns packed as the service packs them, but never divided."""
    shared = share_turns(turns, tree, with_context=with_context, max_tokens=WIDEST_DIALOGUE_TOKENS)
    return FedBatch([each.conversation for each in shared], EOS_ID)


def main(
    tokenizer: Annotated[Path, typer.Argument(help="Folder with GPT-2's vocab.json and merges.txt.")],
    output: Annotated[Path, typer.Option(help="Folder of the plot.")] = Path("build/bench-fed"),
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    layers: Annotated[int, typer.Option(min=1, help="Fewer than DialoGPT-small's 12 for a try.")] = 12,
    threads: Annotated[int, typer.Option(min=0, help="0 takes every CPU the process may use.")] = 0,
) -> ScenarioResult:
    """Compare the published way with the one pass, and measure how the cost grows."""
    try:
        words = ByteLevelBPETokenizer.from_file(str(tokenizer / "vocab.json"), str(tokenizer / "merges.txt"))
    except Exception as error:  # tokenizers raises plain Exception
        raise typer.BadParameter(f"{tokenizer}: no vocab.json and merges.txt of a byte-level BPE ({error})") from error
    with tempfile.TemporaryDirectory() as folder:
        bench = FedBench(words, read_qualities(), Path(folder), threads or usable_cpus(), layers)
        ways, contexts, qualities = (
            measure(rounds) for measure in (bench.compare_ways, bench.measure_contexts, bench.measure_qualities)
        )
        dialogues = bench.measure_dialogues(SWEEP, rounds)
        others = bench.measure_dialogues(OTHERS, rounds)
    output.mkdir(parents=True, exist_ok=True)
    draw(contexts, qualities, dialogues, output / "fed.svg")
    parts = report(ways, contexts, qualities, dialogues, others)
    return ScenarioResult(scenario="fed", parts=parts, data=[ways, contexts, qualities, dialogues, others])


def report(
    ways: Sequence[WayTiming],
    contexts: Sequence[WayTiming],
    qualities: Sequence[WayTiming],
    dialogues: Sequence[DialogueTiming],
    others: Sequence[DialogueTiming],
) -> list[str]:
    """The parts of the page."""

    def rows(timings: Sequence[WayTiming]) -> list[list[str]]:
        return [[each.name, f"{each.tokens:,}", f"{1000 * each.seconds:,.0f}"] for each in timings]

    def cells(each: DialogueTiming) -> list[str]:
        row, apart = each.row, each.turn_by_turn
        times = [f"{1000 * row.seconds:,.0f}", f"{1000 * apart.seconds:,.0f}", f"{each.ratio:.1f}"]
        return [f"{row.tokens:,}", f"{apart.tokens:,}", f"{each.work_ratio:.1f}", *times]

    columns = ["tokens, one row", "tokens, turn by turn", "the work allows", "ms, one row", "ms, turn by turn"]
    columns.append("times faster")
    head = ["tokens computed", "ms"]
    faster = [[*row, f"{ways[0].seconds / way.seconds:.1f}"] for row, way in zip(rows(ways), ways, strict=True)]
    sweep = [[str(each.setting.qualities), str(each.setting.turns), *cells(each)] for each in dialogues]
    return [
        "Random weights of DialoGPT-small's shape. Times are medians.",
        f"## One turn, {CONTEXT_TOKENS} context tokens, 18 qualities, whole-sequence loss",
        table(["way", *head, "times faster"], faster, texts=1),
        "## How the cost grows (one pass, ONNX Runtime fp32, response-only loss)",
        table(["context tokens, 18 qualities", *head], rows(contexts), texts=1),
        table([f"qualities, {CONTEXT_TOKENS} context tokens", *head], rows(qualities), texts=1),
        f"## Dialogues: every second turn the system's, {TURN_TOKENS} tokens per turn",
        table(["qualities", "turns", *columns], sweep, texts=1),
        "## Other dialogues of 20 turns",
        table(["setting", *columns], [[str(each.setting), *cells(each)] for each in others], texts=1),
    ]


def draw(
    contexts: Sequence[WayTiming], qualities: Sequence[WayTiming], dialogues: Sequence[DialogueTiming], path: Path
) -> None:
    """Milliseconds by context and by qualities, and times faster by dialogue; dotted is what the work allows."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "turnscore"
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    *panels, last = figure.subplots(1, 3)
    labels = ("context tokens (18 qualities)", f"qualities ({CONTEXT_TOKENS} context tokens)")
    for panel, timings, label in zip(panels, (contexts, qualities), labels, strict=True):
        panel.plot([int(each.name) for each in timings], [1000 * each.seconds for each in timings], marker="o")
        panel.set(xlabel=label, ylabel="ms per turn")
        panel.set_ylim(bottom=0)
    for count in sorted({each.setting.qualities for each in dialogues}):
        chosen = [each for each in dialogues if each.setting.qualities == count]
        turns = [each.setting.turns for each in chosen]
        [line] = last.plot(turns, [each.ratio for each in chosen], marker="o", label=f"{count}")
        last.plot(turns, [each.work_ratio for each in chosen], linestyle=":", color=line.get_color())
    last.set(xlabel="turns of the dialogue", ylabel="one row: times faster (dotted: the work allows)")
    last.set_ylim(bottom=0)
    last.legend(title="qualities")
    figure.savefig(path, metadata={"Date": None})
