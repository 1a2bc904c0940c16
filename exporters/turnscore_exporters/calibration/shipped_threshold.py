"""The starter's labels: two thresholds made of turns that nothing was fitted on; the values stay.

Below the first one a turn is `low`: at most 5 % of good turns are. From the second one on it is `good`: at most 5 % of
bad turns are. Both are made of judged turns, live and modern ones together; of turns that people rated where there are
no judged ones. All other sets only show what the labels find.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from turnscore_assessment.agreement.bundles import make_turn, score_turns
from turnscore_assessment.data.labelled_turns import (
    DAILYDIALOG,
    GOOD_FROM,
    THUMBS_SET,
    RatedTurn,
    read_development_sets,
    read_judged_turns,
)
from turnscore_assessment.rendering import table_head, table_row
from turnscore_core.inference.cpu_budget import usable_cpus
from turnscore_core.scorers.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_models import Bundle, Recall, Threshold, write_bundle

from turnscore_exporters.bundles.self_test import start_version
from turnscore_exporters.calibration.thresholds import CONFIDENCE, find_threshold, least_good_turns, measure_share
from turnscore_exporters.errors import ExporterError

KIND, DBDC3 = "quality", "dbdc3"
CHOSEN_ON, CALIBRATE = "(chosen on)", "(calibrate)"
GOOD_BY_SET = {DBDC3: 0.5, THUMBS_SET: 0.5}
"""Good from here on where ratings are not from 1 to 5: as many votes for no breakdown as for one; a thumb up."""
BAD_UP_TO = 2.5
"""Most rating, from 1 to 5, of a turn that is bad; one between that and a good one is neither."""


@dataclass(frozen=True, kw_only=True)
class SetFigures:
    """What the labels do on one set. None where there is nothing to count over."""

    name: str
    turns: int
    good: int
    bad: int
    low_of_good: Recall | None
    low_of_bad: Recall | None
    good_of_bad: Recall | None
    good_of_good: Recall | None


def add_threshold(
    bundle: Bundle, folder: Path, version: str, output: Path, rate: float
) -> tuple[Bundle, list[SetFigures]]:
    """Writes the bundle as that version into the empty or missing folder `output`; returns what it finds by set.

    Every file but the manifest stays byte for byte. Raises ExporterError where the bundle is another scorer's, the
    folder is in use, or the data lack good or bad turns.
    """
    if bundle.manifest.kind != KIND:
        raise ExporterError(f"{bundle.manifest.reference} is not a bundle of the scorer {KIND}")
    sets = read_development_sets(folder)
    for part in ("calibrate", "report"):
        for turn in read_judged_turns(folder, [part]):
            sets.setdefault(f"{turn.set_name} ({part})", []).append(turn)
    made_of = [name for name in sets if is_made_of(name)]
    made_of = [name for name in made_of if name.endswith(CALIBRATE)] or made_of
    turns = [turn for name in made_of for turn in sets[name]]
    least = least_good_turns(rate)
    if min(sum(map(is_good, turns)), sum(map(is_bad, turns))) < least:
        raise ExporterError(
            f"to call at most {rate:.0%} of good turns low and of bad ones good, with {CONFIDENCE:.0%} confidence, "
            f"takes at least {least} of each"
        )
    copied = start_version(bundle, version, output)
    loaded = load_scorer(copied, choose_variant(copied), threads=usable_cpus())
    values = {name: score_rated(loaded, turns) for name, turns in sets.items()}

    made = np.array([value for name in made_of for value in values[name]])
    good, bad = (made[[chosen(turn) for turn in turns]] for chosen in (is_good, is_bad))
    low = find_threshold(good.tolist(), rate)
    high = -find_threshold((-bad).tolist(), rate)
    promise = {"source": describe(turns), "false_alarm_rate": rate, "confidence": CONFIDENCE}
    found = {
        "threshold": Threshold(value=low, recall=measure_share(bad < low), **promise),
        # The greatest bad value that may be called good is not: what lies above it is.
        "good_threshold": Threshold(value=float(np.nextafter(high, 1.0)), recall=measure_share(good > high), **promise),
    }
    finished = write_bundle(output, copied.manifest.model_copy(update={"version": version, **found}))
    for variant in copied.manifest.graphs:
        load_scorer(finished, variant, threads=1)
    return finished, [measure_set(name, sets[name], values[name], low, high) for name in sets]


def is_made_of(name: str) -> bool:
    """Whether the set's turns make the thresholds."""
    if name.endswith(CALIBRATE):
        return not name.startswith("judged-made")
    return name.endswith(CHOSEN_ON) and not name.startswith((DAILYDIALOG, THUMBS_SET))


def is_good(turn: RatedTurn) -> bool:
    """Whether the turn was called good, on its set's scale."""
    return turn.rating >= GOOD_BY_SET.get(turn.set_name, GOOD_FROM)


def is_bad(turn: RatedTurn) -> bool:
    """Whether the turn was called bad, on its set's scale."""
    return not is_good(turn) if turn.set_name in GOOD_BY_SET else turn.rating <= BAD_UP_TO


def score_rated(loaded: LoadedScorer, turns: Sequence[RatedTurn]) -> list[float]:
    """The turns' values as the service gives them."""
    asked = [loaded.trim(make_turn(turn.context, turn.response)) for turn in turns]
    return [raw.value for raw in score_turns(loaded, asked)]


def describe(turns: Sequence[RatedTurn]) -> str:
    """The manifest's sentence on the turns that the thresholds were made of."""
    names = sorted({turn.set_name for turn in turns})
    counts = ", ".join(f"{sum(turn.set_name == name for turn in turns)} of {name}" for name in names)
    return (
        f"turns that nothing was fitted on: {counts}, of {len({turn.dialogue for turn in turns})} dialogues; "
        f"{sum(map(is_good, turns))} good ones, with a mean rating of at least {GOOD_FROM} of 5, and "
        f"{sum(map(is_bad, turns))} bad ones, with one of at most {BAD_UP_TO}; those named judged-... were judged by a "
        "large language model"
    )


def measure_set(name: str, turns: Sequence[RatedTurn], values: Sequence[float], low: float, high: float) -> SetFigures:
    """Shares of the set's good and bad turns that get a label, with exact intervals."""
    found = np.array(values)
    good, bad = (np.array([chosen(turn) for turn in turns]) for chosen in (is_good, is_bad))
    return SetFigures(
        name=name,
        turns=len(turns),
        good=int(good.sum()),
        bad=int(bad.sum()),
        low_of_good=measure_share(found[good] < low),
        low_of_bad=measure_share(found[bad] < low),
        good_of_bad=measure_share(found[bad] > high),
        good_of_good=measure_share(found[good] > high),
    )


def format_figures(figures: Sequence[SetFigures]) -> Iterator[str]:
    """A Markdown table, line by line."""
    yield from table_head(["set", "turns", "good", "bad", "good: low", "bad: low", "bad: good", "good: good"])
    for each in figures:
        made_of = ", made of it" if is_made_of(each.name) else ""
        shares = map(_format_share, (each.low_of_good, each.low_of_bad, each.good_of_bad, each.good_of_good))
        yield table_row([f"{each.name}{made_of}", each.turns, each.good, each.bad, *shares])


def _format_share(share: Recall | None) -> str:
    return "-" if share is None else f"{share.share:.1%} [{share.low:.1%}, {share.high:.1%}]"
