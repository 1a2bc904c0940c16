"""`python experiments/replay_drift.py`: whether TurnscoreDrift itself fires on windows of real dialogues.

The dialogues of the human assessment are scored once. A baseline is drawn from them, windows from the others, and
Prometheus' own engine evaluates the shipped rules on a service's counts of them (`promtool test rules`).
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from simulate_drift import BASELINE, DialogueBins, count_bins, read_assessed
from turnscore_assessment.agreement.scoring import load_bundles
from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.drift.report import make_rules
from turnscore_assessment.drift.sources import LiveValues
from turnscore_assessment.errors import AssessmentError

ALERT = "TurnscoreDrift"
_LOT = 10
"""Windows of each kind in one test of promtool."""
_HOURS = 26
"""Length of a window in hours: a day, longer than the alert must hold."""


@dataclass(frozen=True)
class WindowKind:
    """Windows of so many dialogues, a share of which comes from the changed bot."""

    share: float
    dialogues: int

    @property
    def name(self) -> str:
        """The kind as part of a job's name."""
        return f"{self.share:.0%}-{self.dialogues}".replace("%", "")


KINDS = (WindowKind(0.0, 100), WindowKind(0.0, 800), WindowKind(1.0, 100), WindowKind(0.4, 200), WindowKind(0.2, 800))
"""An unchanged bot; changed ones that the simulation nearly always finds; and one that it finds sometimes."""


def draw_bins(
    usual: DialogueBins, changed: DialogueBins, kind: WindowKind, generator: np.random.Generator
) -> NDArray[np.int64]:
    """The bins of one window, in which each dialogue is at most once."""
    odd = round(kind.share * kind.dialogues)
    found = np.zeros(usual.shape[1], np.int64)
    for bins, count in ((usual, kind.dialogues - odd), (changed, odd)):
        found += bins[generator.choice(len(bins), count, replace=False)].sum(axis=0)
    return found


def make_series(job: str, of: LiveValues, bins: Sequence[int], dialogues: int) -> Iterator[tuple[str, str]]:
    """A service's series of those bins in a day, by the hour, in promtool's form."""
    labels = f'job="{job}", scorer="{of.scorer}", model="{of.model}", tenant=""'
    counts = {
        f'turnscore_score_percentile_bucket{{{labels}, le="{100 * (place + 1) / len(bins):.1f}"}}': upto
        for place, upto in enumerate(np.cumsum(bins))
    }
    counts[f"turnscore_live_dialogues_total{{{labels}}}"] = dialogues
    yield from ((name, f"0+{count / 24:.10g}x{_HOURS}") for name, count in counts.items())


def count_fired(
    rules: Path,
    baseline: LiveValues,
    lots: Sequence[Mapping[str, str]],
    kinds: Sequence[WindowKind],
    promtool: str = "promtool",
) -> list[int]:
    """In how many jobs of each kind the alert fires at the end of the day, by Prometheus' own engine.

    The series come in lots, each evaluated by itself: promtool takes no more samples than some 50 windows have.

    Raises AssessmentError where promtool is missing or refuses the rules.
    """
    # promtool prints what differs from the expectation: nothing is expected, so it prints every count.
    asked = [
        f'count(ALERTS{{alertname="{ALERT}", alertstate="firing", job=~"{kind.name}-.+"}}) or vector(0)'
        for kind in kinds
    ]
    tests = [
        {
            "interval": "1h",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": each, "eval_time": f"{_HOURS}h", "exp_samples": []} for each in asked],
        }
        for series in lots
    ]
    own = make_rules([baseline])
    order = [name for text in (own, rules.read_text()) for name in re.findall(r"^ *- name: (\S+)$", text, re.MULTILINE)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "baseline.yml").write_text(own)
        files = ["baseline.yml", str(rules.absolute())]
        written = {"rule_files": files, "evaluation_interval": "1h", "group_eval_order": order, "tests": tests}
        (Path(folder) / "windows.yml").write_text(json.dumps(written))
        command = [promtool, "test", "rules", str(Path(folder) / "windows.yml")]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 no shell
        except FileNotFoundError:
            raise AssessmentError(f"there is no {promtool}: apt-get install prometheus") from None
    found = re.findall(r"^ *got: \{\} (\S+)$", ran.stdout + ran.stderr, re.MULTILINE)
    if len(found) != len(kinds) * len(lots):
        raise AssessmentError(f"promtool: {(ran.stderr or ran.stdout).strip()[:500]}")
    return [sum(int(float(each)) for each in found[place :: len(kinds)]) for place in range(len(kinds))]


def replay(
    rules: Path,
    model: tuple[str, str],
    usual: DialogueBins,
    changed: DialogueBins,
    *,
    windows: int,
    generator: np.random.Generator,
) -> list[int]:
    """In how many windows of each of KINDS the alert fires; the baseline's dialogues are in none of them.

    `model` is the scorer's name and the bundle's reference. Raises AssessmentError where there are too few dialogues.
    """
    needed = max(each.dialogues for each in KINDS)
    if len(usual) < BASELINE + needed or len(changed) < max(round(each.share * each.dialogues) for each in KINDS):
        raise AssessmentError(f"{len(usual)} usual and {len(changed)} degraded dialogues are too few")
    shuffled = generator.permutation(usual)
    bins = [float(each) for each in shuffled[:BASELINE].sum(axis=0)]
    baseline = LiveValues(scorer=model[0], model=model[1], bins=bins, dialogues=BASELINE, turns=sum(bins))

    def window(kind: WindowKind, number: int) -> Iterator[tuple[str, str]]:
        drawn = draw_bins(shuffled[BASELINE:], changed, kind, generator)
        return make_series(f"{kind.name}-{number}", baseline, drawn.tolist(), kind.dialogues)

    lots = [
        dict(each for kind in KINDS for number in numbers for each in window(kind, number))
        for numbers in (range(begin, min(begin + _LOT, windows)) for begin in range(0, windows, _LOT))
    ]
    return count_fired(rules, baseline, lots, KINDS)


def main(
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder with human_assessment/.")],
    rules: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The rules of deploy/observability.")],
    bundle: Annotated[str, typer.Option(help="A bundle's folder (with a /) or name.")] = "quality",
    dialogues: Annotated[
        int, typer.Option(min=1300, help="Usual and degraded dialogues to score, each at most.")
    ] = 1500,
    windows: Annotated[int, typer.Option(min=1, max=1000, help="Of each kind.")] = 100,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Print in how many windows the alert fires, by their size and the share of changed dialogues."""
    with reported_errors():
        [loaded] = load_bundles([bundle]).values()
        usual, changed = (count_bins(loaded, read_assessed(data, degraded, dialogues)) for degraded in (False, True))
        model = (loaded.name, loaded.bundle.manifest.reference)
        fired = replay(rules, model, usual, changed, windows=windows, generator=np.random.default_rng(seed))
    typer.echo(f"{model[1]}: {len(usual)} usual and {len(changed)} degraded dialogues")
    typer.echo(f"| changed dialogues | dialogues in the window | {ALERT} fires |\n|---|---|---|")
    for kind, count in zip(KINDS, fired, strict=True):
        typer.echo(f"| {kind.share:.0%} | {kind.dialogues} | in {count} of {windows} windows |")


if __name__ == "__main__":
    typer.run(main)
