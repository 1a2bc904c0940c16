"""`python experiments/simulate_drift.py`: how often the limit alarms without drift, and with it.

Windows and baselines are drawn, whole dialogues at a time, from scored dialogues of the human assessment data. Of a
changed bot, a share of dialogues comes from that study's degraded system, or every turn's score is lower by a fifth of
a standard deviation. Prints docs/compare.md's table.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import stats
from turnscore_assessment.agreement.scoring import VALUE, JudgedDialogue, load_bundles, score_with_bundle
from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.drift.report import DriftVerdict, find_drift
from turnscore_assessment.drift.sources import BINS, LiveValues
from turnscore_assessment.files import read_rows
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import RawScore

DEGRADED = "QualityControl"
SIZES = (100, 200, 500, 1000)
CHANGED_SHARES = (0.1, 0.2, 0.4, 1.0)
SHIFT = -0.2
BASELINE = 500  # Dialogues of a baseline. Chosen.

DialogueBins = NDArray[np.int64]  # Turns in each bin, a row per dialogue.


def count_alarms(
    usual: DialogueBins,
    changed: DialogueBins,
    *,
    size: int,
    share: float,
    windows: int,
    generator: np.random.Generator,
    by_dialogues: bool = False,
) -> float:
    """The share of windows that alarm against a baseline of usual dialogues, drawn afresh for each.

    `by_dialogues` leaves out what single dialogues counted, as where only metrics are known.
    """
    alarms = 0
    odd = round(share * size)
    for _ in range(windows):
        places = generator.integers(0, len(usual), BASELINE), generator.integers(0, len(usual), size - odd)
        window = np.concatenate([usual[places[1]], changed[generator.integers(0, len(changed), odd)]])
        live, baseline = (_to_values(rows, with_products=not by_dialogues) for rows in (window, usual[places[0]]))
        [finding] = find_drift([live], [baseline])
        alarms += finding.comparisons[-1].verdict is DriftVerdict.DRIFTED
    return alarms / windows


def _to_values(rows: DialogueBins, *, with_products: bool) -> LiveValues:
    bins = rows.sum(axis=0).astype(float).tolist()
    products = (rows.T @ rows).astype(float).tolist() if with_products else []
    return LiveValues(scorer="", model="", bins=bins, dialogues=len(rows), turns=float(rows.sum()), products=products)


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


def count_bins(loaded: LoadedScorer, dialogues: Sequence[JudgedDialogue], shift: float = 0.0) -> DialogueBins:
    """The turns of each dialogue by their percentiles, each score being moved by so many standard deviations.

    The deviations are those of normal scores: a skewed score's own are mostly those of a few turns.
    """
    scored = [
        [turn[VALUE] for turn in each.turns.values()]
        for each in score_with_bundle(loaded, dialogues, lambda _: None).dialogues
    ]
    every = np.array([value for values in scored for value in values])
    if shift:
        places = stats.norm.cdf(stats.norm.ppf(stats.rankdata(every) / (len(every) + 1)) + shift)
        every = np.quantile(every, places)
    moved = iter(every.tolist())
    rows = []
    for values in scored:
        percentiles = [loaded.percentile(RawScore(next(moved))) for _ in values]
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
    """Print the share of windows that alarm, by window size and change."""
    with reported_errors():
        [loaded] = load_bundles([bundle]).values()
        read = read_assessed(data, False, dialogues)
        usual, lower = (count_bins(loaded, read, shift) for shift in (0.0, SHIFT))
        degraded = count_bins(loaded, read_assessed(data, True, dialogues))
    cases = [(usual, 0.0), (lower, 1.0), *((degraded, share) for share in CHANGED_SHARES)]
    names = ("unchanged", f"all scores {SHIFT:+g} sd", *(f"{share:.0%} degraded" for share in CHANGED_SHARES))
    typer.echo(f"{loaded.bundle.manifest.reference}: {len(usual)} usual and {len(degraded)} degraded dialogues")
    typer.echo(f"| limit of | dialogues | {' | '.join(names)} |")
    typer.echo("|---" * (2 + len(names)) + "|")
    generator = np.random.default_rng(seed)
    for by_dialogues in (False, True):
        for size in SIZES:
            count = partial(count_alarms, usual, windows=windows, generator=generator, by_dialogues=by_dialogues)
            found = [count(changed, size=size, share=share) for changed, share in cases]
            kind = "sums" if by_dialogues else "single dialogues"
            typer.echo(f"| {kind} | {size} | {' | '.join(f'{each:.2%}' for each in found)} |")


if __name__ == "__main__":
    typer.run(main)
