"""`python -m turnscore_assessment.drift.simulation`: how often the limit alarms without drift, and with it.

Windows and baselines are drawn, whole dialogues at a time, from scored dialogues of the human assessment data. Of a
changed bot, a share of dialogues comes from that study's degraded system. Prints docs/drift.md's table.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from turnscore_service.scorers.loaded_scorer import LoadedScorer
from turnscore_service.scorers.scorer import RawScore

from turnscore_assessment.agreement.bundles import load_bundles, score_with_bundle
from turnscore_assessment.agreement.data import JudgedDialogue
from turnscore_assessment.agreement.scores import VALUE
from turnscore_assessment.data.dialogues import read_rows
from turnscore_assessment.drift.stability import BINS, find_limit, find_shares, measure_stability
from turnscore_assessment.reported_errors import reported_errors

DEGRADED = "QualityControl"
SIZES = (100, 200, 400, 800)
CHANGED_SHARES = (0.1, 0.2, 0.4, 1.0)
BASELINE = 500
"""Dialogues of a baseline. Chosen."""

DialogueBins = NDArray[np.int64]
"""Turns in each bin, a row per dialogue."""


def draw_window(bins: DialogueBins, dialogues: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """The bins of that many dialogues, drawn with replacement."""
    found: NDArray[np.int64] = bins[generator.integers(0, len(bins), dialogues)].sum(axis=0)
    return found


def count_alarms(
    usual: DialogueBins, changed: DialogueBins, *, size: int, share: float, windows: int, generator: np.random.Generator
) -> float:
    """The share of windows that alarm against a baseline of usual dialogues, drawn afresh for each."""
    alarms = 0
    odd = round(share * size)
    for _ in range(windows):
        reference = find_shares(draw_window(usual, BASELINE, generator))
        window = draw_window(usual, size - odd, generator)
        if odd:
            window = window + draw_window(changed, odd, generator)
        alarms += measure_stability(window, reference) > find_limit(size, BASELINE)
    return alarms / windows


def count_hasty_alarms(usual: DialogueBins, *, size: int, windows: int, generator: np.random.Generator) -> float:
    """The share of windows without drift that would alarm if each turn counted as an observation."""
    alarms = 0
    for _ in range(windows):
        reference, window = draw_window(usual, BASELINE, generator), draw_window(usual, size, generator)
        limit = find_limit(float(window.sum()), float(reference.sum()))
        alarms += measure_stability(window, find_shares(reference)) > limit
    return alarms / windows


def count_misfits(usual: DialogueBins, *, size: int, windows: int, generator: np.random.Generator) -> float:
    """The share of windows of usual dialogues that alarm against the bundle's curve."""
    found = [measure_stability(draw_window(usual, size, generator)) > find_limit(size) for _ in range(windows)]
    return float(np.mean(found))


def read_assessed(data: Path, degraded: bool, most: int) -> list[JudgedDialogue]:
    """So many dialogues of the human assessment, by its degraded system or by the others, drawn by a fixed seed."""
    rows = [
        record
        for file in sorted((data / "human_assessment").glob("*.jsonl.gz"))
        for _, record in read_rows(file)
        if (record.get("model") == DEGRADED) == degraded
    ]
    chosen = np.random.default_rng(0).permutation(len(rows))[:most]
    return [
        JudgedDialogue.model_validate({"id": str(place), "turns": rows[place]["turns"]}) for place in sorted(chosen)
    ]


def count_bins(loaded: LoadedScorer, dialogues: Sequence[JudgedDialogue]) -> DialogueBins:
    """The turns of each dialogue by their percentiles."""
    rows = []
    for scored in score_with_bundle(loaded, dialogues, lambda _: None).dialogues:
        percentiles = [loaded.percentile(RawScore(turn[VALUE])) for turn in scored.turns.values()]
        known = [each for each in percentiles if each is not None]
        rows.append(np.histogram(known, bins=BINS, range=(0, 100))[0])
    return np.array(rows)


def main(
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder with human_assessment/.")],
    bundle: Annotated[str, typer.Option(help="A bundle's folder (with a /) or name.")] = "quality",
    dialogues: Annotated[int, typer.Option(min=50, help="Usual and degraded dialogues to score, each.")] = 400,
    windows: Annotated[int, typer.Option(min=100)] = 2000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Print the share of windows that alarm, by window size and share of changed dialogues."""
    with reported_errors():
        [loaded] = load_bundles([bundle]).values()
        usual, changed = (count_bins(loaded, read_assessed(data, degraded, dialogues)) for degraded in (False, True))
    generator = np.random.default_rng(seed)
    typer.echo(f"{loaded.bundle.manifest.reference}: {len(usual)} usual and {len(changed)} degraded dialogues")
    typer.echo(
        "| dialogues | limit | unchanged, by turns | bundle, unchanged | unchanged |"
        + "".join(f" {s:.0%} |" for s in CHANGED_SHARES)
    )
    typer.echo("|---" * (5 + len(CHANGED_SHARES)) + "|")
    for size in SIZES:
        hasty = count_hasty_alarms(usual, size=size, windows=windows, generator=generator)
        misfits = count_misfits(usual, size=size, windows=windows, generator=generator)
        found = [
            count_alarms(usual, changed, size=size, share=share, windows=windows, generator=generator)
            for share in (0.0, *CHANGED_SHARES)
        ]
        cells = [f"{size}", f"{find_limit(size, BASELINE):.3f}", *(f"{each:.2%}" for each in (hasty, misfits, *found))]
        typer.echo(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    typer.run(main)
