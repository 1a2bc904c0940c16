"""The starter's threshold: made of our development turns as `turnscore-calibrate` makes one; the values stay.

Made of turns that several people rated from 1 to 5 and that nothing was fitted on. DailyDialog's texts, licensed for
non-commercial use, DBDC3, which is kept for measuring, and thumbs, which have another scale, only show what it finds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from turnscore_assessment.agreement.bundles import make_turn, score_turns
from turnscore_assessment.data.development_sets import read_development_sets
from turnscore_assessment.data.rated_turns import DAILYDIALOG, GOOD_FROM, THUMBS_SET, RatedTurn
from turnscore_assessment.markdown import table_head, table_row
from turnscore_models import Bundle, Recall, write_bundle
from turnscore_service.inference.cpu_budget import usable_cpus
from turnscore_service.scorers.loaded_scorer import LoadedScorer, choose_variant, load_scorer

from turnscore_exporters.bundles.self_test import start_version
from turnscore_exporters.calibration.calibration import check_counts, make_threshold
from turnscore_exporters.calibration.thresholds import measure_share
from turnscore_exporters.errors import ExporterError

KIND, DBDC3 = "quality", "dbdc3"
CHOSEN_ON = "(chosen on)"
GOOD_BY_SET = {DBDC3: 0.5, THUMBS_SET: 0.5}
"""Good from here on where ratings are not from 1 to 5: as many votes for no breakdown as for one; a thumb up."""


@dataclass(frozen=True, kw_only=True)
class SetFigures:
    """What the threshold does on one set. None where there is nothing to count over."""

    name: str
    turns: int
    good: int
    false_alarms: Recall | None
    """The share of the good turns that is called low."""
    found: Recall | None
    """The share of the other turns that is called low."""
    precision: Recall | None
    """The share of the turns called low that is not good."""


def add_threshold(
    bundle: Bundle, folder: Path, version: str, output: Path, rate: float
) -> tuple[Bundle, list[SetFigures]]:
    """Writes the bundle as that version into the empty or missing folder `output`; returns what it finds by set.

    Every file but the manifest stays byte for byte. Raises ExporterError where the bundle is another scorer's, the
    folder is in use, or the data lack good turns.
    """
    if bundle.manifest.kind != KIND:
        raise ExporterError(f"{bundle.manifest.reference} is not a bundle of the scorer {KIND}")
    sets = read_development_sets(folder)
    made_of = [name for name in sets if is_made_of(name)]
    turns = [turn for name in made_of for turn in sets[name]]
    good = [is_good(turn) for turn in turns]
    check_counts(good, rate)
    copied = start_version(bundle, version, output)
    loaded = load_scorer(copied, choose_variant(copied), threads=usable_cpus())
    values = {name: score_rated(loaded, turns) for name, turns in sets.items()}
    threshold = make_threshold([each for name in made_of for each in values[name]], good, rate, describe(turns))
    manifest = copied.manifest.model_copy(update={"version": version, "threshold": threshold})
    finished = write_bundle(output, manifest)
    for variant in manifest.graphs:
        load_scorer(finished, variant, threads=1)
    return finished, [measure_set(name, sets[name], values[name], threshold.value) for name in sets]


def is_made_of(name: str) -> bool:
    """Whether the set's turns make the threshold."""
    return name.endswith(CHOSEN_ON) and not name.startswith((DAILYDIALOG, THUMBS_SET))


def is_good(turn: RatedTurn) -> bool:
    """Whether people called the turn good, on its set's scale."""
    return turn.rating >= GOOD_BY_SET.get(turn.set_name, GOOD_FROM)


def score_rated(loaded: LoadedScorer, turns: Sequence[RatedTurn]) -> list[float]:
    """The turns' values as the service gives them."""
    asked = [loaded.trim(make_turn(turn.context, turn.response)) for turn in turns]
    return [raw.value for raw in score_turns(loaded, asked)]


def describe(turns: Sequence[RatedTurn]) -> str:
    """The manifest's sentence on the turns that the threshold was made of."""
    names = sorted({turn.set_name for turn in turns})
    counts = ", ".join(f"{sum(turn.set_name == name for turn in turns)} of {name}" for name in names)
    good = sum(map(is_good, turns))
    return (
        f"development turns that nothing was fitted on: {counts}, of {len({turn.dialogue for turn in turns})} "
        f"dialogues; {good} good ones, with a mean rating of at least {GOOD_FROM} of 5"
    )


def measure_set(name: str, turns: Sequence[RatedTurn], values: Sequence[float], threshold: float) -> SetFigures:
    """Shares of the set's good and other turns that are called low, with exact intervals."""
    low = np.array(values) < threshold
    good = np.array([is_good(turn) for turn in turns])
    return SetFigures(
        name=name,
        turns=len(turns),
        good=int(good.sum()),
        false_alarms=measure_share(low[good]),
        found=measure_share(low[~good]),
        precision=measure_share(~good[low]),
    )


def format_figures(figures: Sequence[SetFigures]) -> Iterator[str]:
    """A Markdown table, line by line."""
    yield from table_head(
        ["set", "turns", "good", "good ones called low", "others called low", "not good, of those called low"]
    )
    for each in figures:
        made_of = ", made of it" if is_made_of(each.name) else ""
        shares = map(_format_share, (each.false_alarms, each.found, each.precision))
        yield table_row([f"{each.name}{made_of}", each.turns, each.good, *shares])


def _format_share(share: Recall | None) -> str:
    return "-" if share is None else f"{share.share:.1%} [{share.low:.1%}, {share.high:.1%}]"
