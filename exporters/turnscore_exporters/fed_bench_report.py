"""bench-fed's page: tables as Markdown and a plot as SVG. Measures nothing."""

from pathlib import Path

from matplotlib import rcParams
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from turnscore_exporters.fed_bench import CONTEXT_TOKENS, TURN_TOKENS, BenchResult, DialogueTiming, Timing

PLOT_FILE, PAGE_FILE = "fed.svg", "fed.md"


def write_report(result: BenchResult, folder: Path, conditions: str) -> None:
    """Writes `fed.md` and `fed.svg`; `conditions` says machine, command and date."""
    folder.mkdir(parents=True, exist_ok=True)
    _draw(result, folder / PLOT_FILE)
    parts = [
        "# What FED costs",
        f"{conditions} Random weights of DialoGPT-small's shape. Medians; of other machines the ratios tell "
        "more than the times.",
        f"## One turn, {CONTEXT_TOKENS} context tokens, 18 qualities, whole-sequence loss",
        _table(["way", "tokens computed", "ms", "times faster"], _way_rows(result.ways)),
        "## How the cost grows (one pass, ONNX Runtime fp32, response-only loss)",
        f"![milliseconds by context, by qualities and by dialogue]({PLOT_FILE})",
        _table(["context tokens, 18 qualities", "tokens computed", "ms"], _rows(result.contexts)),
        _table([f"qualities, {CONTEXT_TOKENS} context tokens", "tokens computed", "ms"], _rows(result.qualities)),
        f"## Dialogues: every second turn the system's, {TURN_TOKENS} tokens a turn",
        "One row computes what was said once. The follow-ups depend on everything before them, so each turn needs its "
        "own; the fewer qualities are asked, the more the shared context counts.",
        _table(
            [
                "qualities",
                "turns",
                "tokens, one row",
                "tokens, turn by turn",
                "ms, one row",
                "ms, turn by turn",
                "ratio",
            ],
            [_dialogue_row(each) for each in result.dialogues],
        ),
    ]
    (folder / PAGE_FILE).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _way_rows(ways: list[Timing]) -> list[list[str]]:
    slowest = ways[0].seconds
    return [[*row, f"{slowest / way.seconds:.1f}"] for row, way in zip(_rows(ways), ways, strict=True)]


def _rows(timings: list[Timing]) -> list[list[str]]:
    return [[each.name, f"{each.tokens:,}", _ms(each)] for each in timings]


def _dialogue_row(each: DialogueTiming) -> list[str]:
    tokens = [f"{each.row.tokens:,}", f"{each.turn_by_turn.tokens:,}"]
    return [str(each.qualities), str(each.turns), *tokens, _ms(each.row), _ms(each.turn_by_turn), f"{each.ratio:.1f}"]


def _ms(timing: Timing) -> str:
    return f"{1000 * timing.seconds:,.0f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
        panel.set_ylabel("ms a turn")
        panel.set_ylim(bottom=0)
    for count in sorted({each.qualities for each in result.dialogues}):
        chosen = [each for each in result.dialogues if each.qualities == count]
        dialogues.plot([each.turns for each in chosen], [each.ratio for each in chosen], marker="o", label=f"{count}")
    dialogues.set_xlabel("turns of the dialogue")
    dialogues.set_ylabel("one row: times faster")
    dialogues.set_ylim(bottom=0)
    dialogues.legend(title="qualities")
    figure.savefig(path, metadata={"Date": None})
