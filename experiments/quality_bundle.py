"""Gives a quality bundle its value, fitted again, or its two thresholds; weights stay byte for byte.

    .venv-dev/bin/python experiments/quality_bundle.py value BUNDLE/ --data DATA --version 2.0.1 --output NEW
    .venv-dev/bin/python experiments/quality_bundle.py thresholds BUNDLE/ --data DATA --version 2.0.1 --output NEW

Below the first threshold a turn is `low`: at most 5 % of good turns are. From the second one on it is `good`: at most
5 % of bad turns are. Both are made of judged turns that nothing was fitted on, live and modern ones together; of turns
that people rated where there are no judged ones. All other sets only show what the labels find.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from pydantic import JsonValue
from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.data.dialogues import (
    DAILYDIALOG,
    GOOD_FROM,
    THUMBS_SET,
    LabelledTurn,
    read_development_sets,
    read_judged_turns,
)
from turnscore_assessment.figures import Floats, compute_auc, compute_spearman
from turnscore_assessment.rendering import table_head, table_row
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.quality import CONTEXT_ROWS, QualityOptions, QualityScorer
from turnscore_core.scoring import score_turns
from turnscore_exporters.bundles.self_test import (
    build_self_test,
    open_examined,
    self_test_turns,
    start_version,
    write_self_test,
)
from turnscore_exporters.calibration.recalibration import CONFIDENCE, find_threshold, least_good_turns, measure_share
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.bundle import serve_turns
from turnscore_exporters.quality.value import Asked, fit_value
from turnscore_models.bundle import Bundle, write_bundle
from turnscore_models.manifest import BundleError, Threshold
from turnscore_models.store import resolve

COLUMNS = ("set", "turns", "good", "bad", "good: low", "bad: low", "bad: good", "good: good")
KIND, DBDC3 = "quality", "dbdc3"
CHOSEN_ON, CALIBRATE = "(chosen on)", "(calibrate)"
# Good from here on where ratings are not from 1 to 5: as many votes for no breakdown as for one; a thumb up.
GOOD_BY_SET = {DBDC3: 0.5, THUMBS_SET: 0.5}
BAD_UP_TO = 2.5  # Most rating, from 1 to 5, of a turn that is bad; one between that and a good one is neither.


def add_threshold(bundle: Bundle, folder: Path, version: str, output: Path, rate: float) -> tuple[Bundle, list[str]]:
    """Writes the bundle as that version into the empty or missing folder `output`, and returns a table by set.

    Every file but the manifest stays byte for byte; heads for user turns go, since reaction has its own. Raises
    ExporterError where the bundle is another scorer's, the folder is in use, or the data lack good or bad turns.
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
    copied = _without_user_turns(start_version(bundle, version, output))
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
    rows = [measure_set(name, sets[name], np.array(values[name]), low, high) for name in sets]
    return finished, [*table_head(COLUMNS), *map(table_row, rows)]


def _without_user_turns(bundle: Bundle) -> Bundle:
    """The bundle without its heads for user turns, which a bundle of reaction has trained further for itself."""
    heads = {name: each for name, each in bundle.manifest.heads.items() if name == KIND}
    for name in bundle.manifest.heads.keys() - heads.keys():
        bundle.path_of(bundle.manifest.heads[name].file).unlink()
    return write_bundle(bundle.folder, bundle.manifest.model_copy(update={"heads": heads}))


def is_made_of(name: str) -> bool:
    """Whether the set's turns make the thresholds."""
    if name.endswith(CALIBRATE):
        return not name.startswith("judged-made")
    return name.endswith(CHOSEN_ON) and not name.startswith((DAILYDIALOG, THUMBS_SET))


def is_good(turn: LabelledTurn) -> bool:
    """Whether the turn was called good, on its set's scale."""
    return turn.rating >= GOOD_BY_SET.get(turn.set_name, GOOD_FROM)


def is_bad(turn: LabelledTurn) -> bool:
    """Whether the turn was called bad, on its set's scale."""
    return not is_good(turn) if turn.set_name in GOOD_BY_SET else turn.rating <= BAD_UP_TO


def score_rated(loaded: LoadedScorer, turns: Sequence[LabelledTurn]) -> list[float]:
    """The turns' values as the service gives them."""
    return [raw.value for raw in score_turns(loaded, [turn.to_score() for turn in turns])]


def describe(turns: Sequence[LabelledTurn]) -> str:
    """The manifest's sentence on the turns that the thresholds were made of."""
    names = sorted({turn.set_name for turn in turns})
    counts = ", ".join(f"{sum(turn.set_name == name for turn in turns)} of {name}" for name in names)
    return (
        f"turns that nothing was fitted on: {counts}, of {len({turn.dialogue for turn in turns})} dialogues; "
        f"{sum(map(is_good, turns))} good ones, with a mean rating of at least {GOOD_FROM} of 5, and "
        f"{sum(map(is_bad, turns))} bad ones, with one of at most {BAD_UP_TO}; those named judged-... were judged by a "
        "large language model"
    )


def measure_set(name: str, turns: Sequence[LabelledTurn], values: Floats, low: float, high: float) -> list[object]:
    """The set's row of COLUMNS: shares of its good and bad turns that get a label, with exact intervals."""
    good, bad = (np.array([chosen(turn) for turn in turns]) for chosen in (is_good, is_bad))
    labelled = (values[good] < low, values[bad] < low, values[bad] > high, values[good] > high)
    shares = [
        "-" if share is None else f"{share.share:.1%} [{share.low:.1%}, {share.high:.1%}]"
        for share in map(measure_share, labelled)
    ]
    return [f"{name}{', made of it' if is_made_of(name) else ''}", len(turns), int(good.sum()), int(bad.sum()), *shares]


def renew_value(
    bundle: Bundle, folder: Path, version: str, output: Path, context_turns: int
) -> tuple[Bundle, dict[str, float]]:
    """Writes the bundle as that version into the empty or missing folder `output`; returns its agreement by set.

    The value is fitted to the heads that the graph gives where it reads so many context turns. Thresholds and figures
    of the old value go; percentiles are its until they are renewed. Raises ExporterError where the bundle is another
    scorer's, the folder is in use, or the data lack judged turns.
    """
    if bundle.manifest.kind != KIND:
        raise ExporterError(f"{bundle.manifest.reference} is not a bundle of the scorer {KIND}")
    copied = start_version(bundle, version, output)
    options = QualityOptions.model_validate(copied.manifest.options)
    layout = options.layout.model_copy(update={"context_turns": context_turns})
    backend = open_examined(copied, choose_variant(copied), usable_cpus())

    def write(value: Mapping[str, JsonValue], training: Mapping[str, JsonValue]) -> Bundle:
        changed = QualityOptions.model_validate({**options.model_dump(), "layout": layout.model_dump(), "value": value})
        agreement = {name: kept for name, kept in copied.manifest.agreement.items() if name not in VALUE_FIGURES}
        update = {
            "version": version,
            "options": changed.model_dump(mode="json"),
            "training": {**copied.manifest.training, **training},
            "agreement": agreement,
            "threshold": None,
            "good_threshold": None,
        }
        turns, manifest = self_test_turns(KIND), copied.manifest.model_copy(update=update)
        first = write_self_test(copied, manifest, build_self_test(turns, [None] * len(turns)))
        # No checkpoint has this value: what the graph gives stands in its place.
        own = [each.graphs[choose_variant(copied)].value for each in first.self_test().turns]
        return write_self_test(first, manifest, build_self_test(turns, own))

    def score(asked: Sequence[Asked]) -> Floats:
        turns = [LabelledTurn(context=tuple(context), response=response).to_score() for context, response in asked]
        return serve_turns(QualityScorer(reading, backend), turns).heads

    reading = write(options.value.model_dump(mode="json"), {})
    formula = fit_value(score, folder).model_dump(mode="json")
    finished = write(formula, {"value.json": formula.pop("fitted_on")})
    loaded = load_scorer(finished, choose_variant(finished), threads=usable_cpus())
    figures: dict[str, float] = {}
    for name, turns in read_development_sets(folder).items():
        ratings = [turn.rating for turn in turns]
        measure = compute_auc if set(ratings) <= {0.0, 1.0} else compute_spearman
        figures[name] = round(measure(score_rated(loaded, turns), ratings), 4)
    known = finished.manifest.agreement
    agreement: dict[str, JsonValue] = {**known, "agreement_by_graph": {loaded.variant: {**figures}}}
    return write_bundle(output, finished.manifest.model_copy(update={"agreement": agreement})), figures


VALUE_FIGURES = ("agreement_by_graph", "report", "before_repeats")  # What a manifest says of the value.


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
BundleArgument = Annotated[str, typer.Argument(help="A bundle of quality: its folder (with a /), or its name.")]
DataOption = Annotated[Path, typer.Option(help="Folder with the development sets under their published names.")]
VersionOption = Annotated[str, typer.Option(help="Version of the new bundle.")]
OutputOption = Annotated[Path, typer.Option(help="Folder for the bundle; must be empty or missing.")]


@app.command()
def thresholds(
    bundle: BundleArgument,
    data: DataOption,
    version: VersionOption,
    output: OutputOption,
    false_alarms: Annotated[float, typer.Option(min=0.001, max=0.5, help="Share of good turns called low.")] = 0.05,
) -> None:
    """Write the bundle with thresholds for `low` and `good`, without heads for user turns; all else stays."""
    with reported_errors(ExporterError, BundleError):
        made, figures = add_threshold(resolve(bundle), data, version, output, false_alarms)
    typer.echo("\n".join(figures))
    typer.echo(f"{made.manifest.reference} written to {output}")


@app.command()
def value(
    bundle: BundleArgument,
    data: DataOption,
    version: VersionOption,
    output: OutputOption,
    context_turns: Annotated[int, typer.Option(min=1, max=CONTEXT_ROWS, help="Context turns that it reads.")] = 3,
) -> None:
    """Write the bundle with its value fitted again to judged turns and ratings."""
    with reported_errors(ExporterError, BundleError):
        made, figures = renew_value(resolve(bundle), data, version, output, context_turns)
    for name, figure in figures.items():
        typer.echo(f"{name}: {figure:.4f}")
    typer.echo(f"{made.manifest.reference} written to {output}; renew its percentiles and thresholds")


if __name__ == "__main__":
    app()
