"""Commands on ratings files and on texts: reports, replications, metrics, power, reliability, readability."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from turnscore_assessment.analysis.metrics import MetricsOptions, measure_file
from turnscore_assessment.analysis.power import PowerOptions, PowerPlan, plan_study, read_pilot
from turnscore_assessment.command_line import (
    Commands,
    RatingsFile,
    RoundsOption,
    SeedOption,
    command_of,
    file_option,
    input_file,
    refuse_input,
)
from turnscore_assessment.commands import design
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.files import to_csv, write_rows, write_text
from turnscore_assessment.ratings import rating_file
from turnscore_assessment.ratings.rating_file import RatingFile, RatingUnit
from turnscore_assessment.rendering import Page, Section, Table, print_page, write_report

if TYPE_CHECKING:
    from turnscore_assessment.readability.text_scores import DialogueReadability


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    help="Judge dialogue systems with people: rating sheets, reliability, power and reports.",
)
app.add_typer(design.app, name="design")


@app.command("report")
def run_report(
    ratings: RatingsFile,
    output: Annotated[Path, Option(file_okay=False, help="Folder for the report.")] = Path("build/assessment"),
    rounds: RoundsOption = ROUNDS,
    seed: SeedOption = 0,
) -> None:
    """Report on a study: who rated in earnest, how good each system is, which differences are more than chance."""
    words = ["turnscore", "assess", "report", ratings.name, "--rounds", str(rounds), "--seed", str(seed)]
    report_study(rating_file.read_ratings(ratings), output, rounds, seed, shlex.join(words))


def report_study(ratings: RatingFile, output: Path, rounds: int, seed: int, command: str) -> None:
    """Writes the report, and prints its systems and workers."""
    from turnscore_assessment.analysis.study_report import build_page, build_report

    report = build_report(ratings, rounds, seed)
    page = build_page(report, command)
    shown = [each for each in page.sections if each.heading in ("Systems", "Quality control")]
    csv = {"systems": report.systems, "pairs": report.pairs, "workers": report.workers, "raw": report.raw}
    _finish(output, "report", page, report, csv, shown)


@app.command("replicate")
def run_replicate(
    first: RatingsFile,
    second: RatingsFile,
    output: Annotated[Path, Option(file_okay=False, help="Folder for the figures.")] = Path("build/replication"),
    rounds: RoundsOption = ROUNDS,
    seed: SeedOption = 0,
) -> None:
    """Compare two studies: correlations over systems, same conclusions, how few workers would have sufficed."""
    from turnscore_assessment.analysis.replication import build_page, compare_studies

    words = ["turnscore", "assess", "replicate", first.name, second.name, "--rounds", str(rounds), "--seed", str(seed)]
    found = compare_studies(rating_file.read_ratings(first), rating_file.read_ratings(second), rounds, seed)
    rows = [
        {"scores": kind, "column": name, "": column}
        for kind, columns in found.columns.items()
        for name, column in columns.items()
    ]
    _finish(output, "replication", build_page(found, shlex.join(words)), found, {"replication": rows})


def run_metrics(options: MetricsOptions) -> None:
    """Writes the figures, and prints their summary."""
    words = ["turnscore", "assess", "metrics", options.ratings.name, *(path.name for path in options.scores or [])]
    words += [*options.words, *(["--per-system", str(options.per_system)] if options.per_system else [])]
    command = shlex.join([*words, "--rounds", str(options.rounds), "--seed", str(options.seed)])
    page, found = measure_file(options, command)
    _finish(options.output, "metrics", page, found, {"metrics": found["metrics"]})


app.command("metrics")(command_of(MetricsOptions, run_metrics))


def _finish(
    folder: Path,
    name: str,
    page: Page,
    result: object,
    csv: Mapping[str, Sequence[object]],
    shown: Sequence[Section] = (),
) -> None:
    written = write_report(folder, name, page, result, csv)
    print_page(replace(page, summary=[*page.summary, f"wrote {', '.join(map(str, written))}"], sections=shown))


def build_power_page(plan: PowerPlan) -> Page:
    """The power by the number of workers, and how the plan was made."""
    rows = [
        [
            str(point.workers),
            2 * plan.dialogues * point.workers,
            *(f"{each:.1%}" for each in (point.power, point.error, point.wrong)),
        ]
        for point in plan.curve
    ]
    header = ["workers", "dialogues", "power", "Monte-Carlo error", "seen the wrong way round"]
    tables = [Table("", header, rows)] if rows else []
    return Page(title="Power", sections=[Section("Power", tables=tables, paragraphs=list(list_remarks(plan)))])


def list_remarks(plan: PowerPlan) -> Iterator[str]:
    """Sentences on the plan and how it was made."""
    kind = "workers" if plan.is_paired else "workers of each system"
    aim = f"to see a difference of {plan.difference:.3g} in {plan.power:.0%} of studies at level {plan.level:g}"
    if plan.needed is None:
        yield f"more {kind} than can be simulated are needed {aim}"
    else:
        yield (
            f"{plan.needed} {kind} ({plan.needed_low} to {plan.needed_high} for the Monte-Carlo error), "
            f"{plan.dialogues} dialogue{'s' if plan.dialogues > 1 else ''} of each system by each, {aim}"
        )
    if plan.false_alarms is not None:
        alarms = plan.false_alarms.power + plan.false_alarms.wrong
        yield f"without a difference, {alarms:.1%} of studies of that size see one"
    workers = " and ".join(map(str, sorted(set(plan.pilot_workers))))
    yield (
        f"pilot: {workers} workers, difference {plan.pilot_difference:.3g} (standard error {plan.pilot_error:.2g}), "
        f"standard deviation {plan.spread:.3g}; {plan.simulations} simulated studies, workers and their dialogues "
        "drawn with replacement, two-sided t-test of workers' differences"
    )
    yield from plan.notes
    yield f"transforms: {', '.join(plan.transforms)}"


@dataclass(frozen=True, kw_only=True)
class PilotOptions(PowerOptions):
    """Plan how many workers and dialogues show a difference between two systems, from the ratings of a pilot study."""

    pilot: RatingsFile
    systems: Annotated[str, Option(help="Two systems of the pilot, as in `A,B`.")]
    criterion: Annotated[str, Option(help="Criterion of the pilot.")] = rating_file.OVERALL
    transform: Annotated[RatingUnit, Option(help="Unit of ratings: z per worker, or raw points.")] = "z"
    output: Annotated[Path | None, Option(dir_okay=False, help="File for the plan, as JSON.")] = None


def run_power(options: PilotOptions) -> None:
    """Plans, and says how."""
    names = [name.strip() for name in options.systems.split(",")]
    if len(names) != 2 or not all(names):
        raise typer.BadParameter("must name two systems, as in `A,B`", param_hint="--systems")
    ratings = rating_file.read_ratings(options.pilot)
    found = read_pilot(ratings, names[0], names[1], options.criterion, options.transform, options.dialogues)
    plan = plan_study(found, options)
    print_page(build_power_page(plan), plan, options.output)


app.command("power")(command_of(PilotOptions, run_power))


@app.command("reliability")
def run_reliability(
    file: Annotated[Path, input_file("Ratings in which `dialogue` names items, or CSV of item, rater, value.")],
    output: Annotated[Path | None, Option(dir_okay=False, help="File for the figures, as JSON.")] = None,
    rounds: RoundsOption = ROUNDS,
    seed: SeedOption = 0,
) -> None:
    """Measure how far raters agree beyond chance, for each criterion; intervals are of other items."""
    from turnscore_assessment.ratings.reliability import FIGURES, measure_reliability, read_items

    found = [measure_reliability(items, rounds, seed) for items in read_items(file)]
    rows = [[each.name, each.items, f"{each.raters:.1f}", *(each.figures[name] for name in FIGURES)] for each in found]
    remarks = [
        f"{each.name}: {'; '.join(each.undefined) or 'all ratings are the same'}"
        for each in found
        if all(math.isnan(figure.value) for figure in each.figures.values())
    ]
    remarks.append("intervals of 95 %: other items with these raters; too narrow for other raters")
    table = Table("", ["ratings", "items", "raters per item", *FIGURES], rows)
    section = Section("Reliability", tables=[table], paragraphs=remarks)
    print_page(Page(title="Reliability", sections=[section]), found, output)


@app.command("convert")
def run_convert(
    sources: Annotated[list[Path], input_file("All files of one run: workers who passed and workers who failed.")],
    output: Annotated[Path, Option(dir_okay=False, help="File to write; gzipped if it ends in .gz.")],
    study: Annotated[str, Option(help="The study's name; default: the output's.")] = "",
) -> None:
    """Write the published conversations of one run as a ratings file."""
    refuse_input(output, sources, "--output")
    ratings = rating_file.read_published(sources, study or output.name.partition(".")[0])
    rating_file.write_ratings(output, ratings)
    workers = {dialogue.worker for dialogue in ratings.dialogues}
    typer.echo(f"wrote {output}: {len(ratings.dialogues)} rated dialogues of {len(workers)} workers")


@app.command("readability")
def run_readability(
    dialogues: Annotated[Path, input_file("JSON lines with `turns`, or ratings; .gz is unpacked.")],
    output: Annotated[Path, Option(dir_okay=False, help="CSV to write, a line per dialogue.")],
    encoder: Annotated[str | None, Option(help="An encoder's bundle for coherence: folder (with a /) or name.")] = None,
    context_turns: Annotated[int, Option(min=1, max=50, help="Turns of context to compare a response with.")] = 1,
    dull: Annotated[Path | None, file_option("Dull patterns, a line each.")] = None,
    function_words: Annotated[Path | None, file_option("Words that say nothing, a line each.")] = None,
) -> None:
    """Measure how easy replies read (Flesch), and their distance from the context, times a penalty for dull ones."""
    from turnscore_assessment.data.dialogues import read_conversations
    from turnscore_assessment.readability.text_scores import read_patterns, score_texts
    from turnscore_assessment.references.vector_metrics import BundleEncoder

    patterns, read = read_patterns(dull, function_words), list(read_conversations(dialogues))
    found = list(score_texts(read, patterns, BundleEncoder(encoder) if encoder else None, context_turns))
    if not found:
        raise typer.BadParameter("no system turn has a text", param_hint="dialogues")
    head = ["line", "system", "words", *found[0].columns]
    rows = [
        [each.line, each.system, each.readability.words]
        + ["" if value is None else float(f"{value:.6g}") for value in each.columns.values()]
        for each in found
    ]
    write_text(output, to_csv(head, rows))
    print_page(build_readability_page(found))
    typer.echo(f"wrote {output}: {len(found)} dialogues")


def build_readability_page(found: Sequence["DialogueReadability"]) -> Page:
    """A row per system: the means over its dialogues, and how many turns are too short for a reliable reading ease."""
    names = list(found[0].columns)
    rows = []
    for system in sorted({each.system for each in found}):
        own = [each for each in found if each.system == system]
        known = {name: [value for each in own if (value := each.columns[name]) is not None] for name in names}
        unreliable = sum(not turn.readability.is_reliable for each in own for turn in each.turns)
        turns = sum(len(each.turns) for each in own)
        means = [fmean(values) if values else None for values in known.values()]
        rows.append([system or "-", len(own), *means, f"{unreliable} of {turns}"])
    table = Table("", ["system", "dialogues", *names, "under 10 words"], rows)
    return Page(title="Readability", sections=[Section("Systems", tables=[table])])


@app.command("distort")
def run_distort(
    dialogues: Annotated[Path, input_file("JSON lines with `turns`; .gz is unpacked.")],
    output: Annotated[Path, Option(dir_okay=False, help="File to write; gzipped if it ends in .gz.")],
    corpus: Annotated[Path | None, file_option("File of the replies; default: the same file.")] = None,
    count: Annotated[int | None, Option(min=1, help="Number of dialogues, from the beginning of the file.")] = None,
    seed: SeedOption = 0,
) -> None:
    """Give recorded dialogues random, distorted replies that ignore the user, as the published quality control does."""
    from turnscore_assessment.distortion import distort_dialogues, read_corpus

    source = corpus or dialogues
    refuse_input(output, [dialogues, source], "--output")
    replies = read_corpus(source)
    rows = list(islice(distort_dialogues(dialogues, replies, seed, source.samefile(dialogues)), count))
    write_rows(output, rows)
    typer.echo(f"wrote {output}: {len(rows)} degraded dialogues, replies from {len(replies.replies)}")
