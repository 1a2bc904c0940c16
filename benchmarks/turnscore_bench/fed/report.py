"""bench-fed's page: tables as Markdown and a plot as SVG. Measures nothing."""

from dataclasses import dataclass
from pathlib import Path

from matplotlib import rcParams
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from turnscore_bench.fed.bench import CONTEXT_TOKENS
from turnscore_bench.fed.dialogues import TURN_TOKENS, DialogueTiming, Setting
from turnscore_bench.fed.ways import Timing
from turnscore_bench.harness.page import table

PLOT_FILE, PAGE_FILE = "fed.svg", "fed.md"
DIALOGUE_COLUMNS = [
    "tokens, one row",
    "tokens, turn by turn",
    "the work allows",
    "ms, one row",
    "ms, turn by turn",
    "times faster",
]


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """Everything one run measured."""

    ways: list[Timing]
    contexts: list[Timing]
    qualities: list[Timing]
    dialogues: list[DialogueTiming]
    other_dialogues: list[DialogueTiming]


def write_report(result: BenchResult, folder: Path, conditions: str) -> None:
    """Writes `fed.md` and `fed.svg`; `conditions` says machine, command and date."""
    folder.mkdir(parents=True, exist_ok=True)
    _draw(result, folder / PLOT_FILE)
    parts = [
        "# What FED costs",
        f"{conditions} Random weights of DialoGPT-small's shape. Times are medians; for other machines the ratios "
        "say more than the times.",
        f"## One turn, {CONTEXT_TOKENS} context tokens, 18 qualities, whole-sequence loss",
        table(["way", "tokens computed", "ms", "times faster"], _way_rows(result.ways), texts=1),
        "## How the cost grows (one pass, ONNX Runtime fp32, response-only loss)",
        f"![milliseconds by context, by qualities and by dialogue]({PLOT_FILE})",
        table(["context tokens, 18 qualities", "tokens computed", "ms"], _rows(result.contexts), texts=1),
        table(
            [f"qualities, {CONTEXT_TOKENS} context tokens", "tokens computed", "ms"], _rows(result.qualities), texts=1
        ),
        f"## Dialogues: every second turn the system's, {TURN_TOKENS} tokens per turn",
        "One row computes each turn's text once. The follow-ups depend on everything before them, so each turn needs "
        "its own; the fewer qualities are asked, the more the shared context counts. *The work allows*: the matrix "
        "products of turn by turn, in floating point operations, over those of one row. No implementation that "
        "computes both exactly can save more.",
        table(["qualities", "turns", *DIALOGUE_COLUMNS], [_sweep_row(each) for each in result.dialogues], texts=1),
        "Other dialogues of 20 turns. The last row has FED's eight turn-level qualities for every system turn and "
        "all eighteen for the last only, as the paper uses them:",
        table(["setting", *DIALOGUE_COLUMNS], [_other_row(each) for each in result.other_dialogues], texts=1),
    ]
    (folder / PAGE_FILE).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _way_rows(ways: list[Timing]) -> list[list[str]]:
    slowest = ways[0].seconds
    return [[*row, f"{slowest / way.seconds:.1f}"] for row, way in zip(_rows(ways), ways, strict=True)]


def _rows(timings: list[Timing]) -> list[list[str]]:
    return [[each.name, f"{each.tokens:,}", _ms(each)] for each in timings]


def _sweep_row(each: DialogueTiming) -> list[str]:
    return [str(each.setting.qualities), str(each.setting.turns), *_dialogue_cells(each)]


def _other_row(each: DialogueTiming) -> list[str]:
    return [_name(each.setting), *_dialogue_cells(each)]


def _name(setting: Setting) -> str:
    asked = f"{setting.qualities} qualities"
    if setting.qualities_at_end is not None:
        asked += f", {setting.qualities_at_end} of the last turn"
    loss = ", whole-sequence loss" if setting.with_context else ""
    graph = "" if setting.graph == "fp32" else f", {setting.graph}"
    return f"{asked}, {setting.turn_tokens} tokens per turn{loss}{graph}"


def _dialogue_cells(each: DialogueTiming) -> list[str]:
    row, turn_by_turn = each.row, each.turn_by_turn
    counts = [f"{row.tokens:,}", f"{turn_by_turn.tokens:,}", f"{each.work_ratio:.1f}"]
    return [*counts, _ms(row), _ms(turn_by_turn), f"{each.ratio:.1f}"]


def _ms(timing: Timing) -> str:
    return f"{1000 * timing.seconds:,.0f}"


def _draw(result: BenchResult, path: Path) -> None:
    rcParams["svg.hashsalt"] = "turnscore"
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasSVG(figure)
    context, qualities, dialogues = figure.subplots(1, 3)
    for panel, timings, label in (
        (context, result.contexts, "context tokens (18 qualities)"),
        (qualities, result.qualities, f"qualities ({CONTEXT_TOKENS} context tokens)"),
    ):
        panel.plot([int(each.name) for each in timings], [1000 * each.seconds for each in timings], marker="o")
        panel.set_xlabel(label)
        panel.set_ylabel("ms per turn")
        panel.set_ylim(bottom=0)
    for count in sorted({each.setting.qualities for each in result.dialogues}):
        chosen = [each for each in result.dialogues if each.setting.qualities == count]
        turns = [each.setting.turns for each in chosen]
        [line] = dialogues.plot(turns, [each.ratio for each in chosen], marker="o", label=f"{count}")
        dialogues.plot(turns, [each.work_ratio for each in chosen], linestyle=":", color=line.get_color())
    dialogues.set_xlabel("turns of the dialogue")
    dialogues.set_ylabel("one row: times faster (dotted: the work allows)")
    dialogues.set_ylim(bottom=0)
    dialogues.legend(title="qualities")
    figure.savefig(path, metadata={"Date": None})
