"""Options of the commands that train the papers' other systems."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.command_line import reported_errors

from turnscore_exporters.commands.options import DataOption, EncoderOption, OutputOption, ThreadsOption
from turnscore_exporters.errors import ExporterError

WordsOption = Annotated[
    Path | None,
    typer.Option(help="Word vectors: word2vec's .bin, or a line per word. Default: the encoder's word table."),
]
FullOption = Annotated[bool, typer.Option("--full", help="Train the full size in place of the small one; takes hours.")]
ExchangesOption = Annotated[int | None, typer.Option(min=100, help="Exchanges to draw of dialogue_text.jsonl.gz.")]
StepsOption = Annotated[int | None, typer.Option(min=1, help="Steps of each loop in place of the size's.")]
RateOption = Annotated[float | None, typer.Option(min=0, help="Learning rate in place of the size's.")]
BatchOption = Annotated[int | None, typer.Option(min=2, help="Rows per step, of usr and 3p.")]
TurnsOption = Annotated[int, typer.Option(min=10, help="Most judged turns per set.")]
CountsOption = Annotated[bool, typer.Option(help="Accept other ConvAI pair counts than the published ones.")]


def train_baseline(
    name: Annotated[str, typer.Argument(help="ruber, ctx-ruber, pone, usr, 3p, svm or bi-rnn.")],
    data: DataOption,
    output: OutputOption,
    encoder: EncoderOption = "minilm-l6",
    words: WordsOption = None,
    full: FullOption = False,
    exchanges: ExchangesOption = None,
    steps: StepsOption = None,
    learning_rate: RateOption = None,
    batch_size: BatchOption = None,
    turns: TurnsOption = 3000,
    seed: int = 0,
    threads: ThreadsOption = 0,
    any_counts: CountsOption = False,
) -> None:
    """Train one of the papers' other systems and report its agreement with people, length beside every figure."""
    from turnscore_exporters.baselines.job import BaselineJob, run_baseline_job
    from turnscore_exporters.baselines.page.table import format_page
    from turnscore_exporters.baselines.plan import Plan
    from turnscore_exporters.baselines.sizes import find_size

    with reported_errors(ExporterError):
        size = find_size(name, is_full=full).with_choices(
            exchanges=exchanges, steps=steps, learning_rate=learning_rate, batch_size=batch_size
        )
        plan = Plan(data=data, output=output, size=size, encoder=encoder, words=words, seed=seed)
        job = BaselineJob(name=name, plan=plan, threads=threads, most_turns=turns, check_counts=not any_counts)
        report = run_baseline_job(job)
    typer.echo(format_page([report], f"turnscore-train baseline {name} --data DATA --output {output.name}"))


def train_baselines(
    data: DataOption,
    output: Annotated[Path, typer.Option("--output", help="Folder for all baselines, a folder each; resumes.")],
    page: Annotated[Path | None, typer.Option(help="File for the page. Default: baselines.md in the folder.")] = None,
    rows: Annotated[Path | None, typer.Option(help="File for the rows of turnscore-agreement-table, JSON.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Train this baseline alone; repeatable.")] = None,
    full_size: Annotated[
        Path | None, typer.Option(help="Output folder of a run with --full, for a section of the page.")
    ] = None,
    encoder: EncoderOption = "minilm-l6",
    words: WordsOption = None,
    full: FullOption = False,
    exchanges: ExchangesOption = None,
    steps: StepsOption = None,
    turns: TurnsOption = 3000,
    seed: int = 0,
    threads: ThreadsOption = 0,
    any_counts: CountsOption = False,
) -> None:
    """Train all of them one after another, skipping finished ones, and write one page."""
    from turnscore_exporters.baselines.job import NAMES, BaselineJob, run_baseline_job
    from turnscore_exporters.baselines.measures.agreement import read_asked_sets
    from turnscore_exporters.baselines.page.table import find_trained, read_reports, write_table
    from turnscore_exporters.baselines.plan import Plan
    from turnscore_exporters.baselines.sizes import find_size

    chosen = only or list(NAMES)
    words_of = {"--full": full, "--exchanges": exchanges, "--steps": steps, "--seed": seed}
    with reported_errors(ExporterError):
        larger = [] if full_size is None else read_reports(find_trained(full_size, NAMES))
        sizes = {name: find_size(name, is_full=full).with_choices(exchanges=exchanges, steps=steps) for name in chosen}
        for name, size in sizes.items():
            plan = Plan(data=data, output=output / name, size=size, encoder=encoder, words=words, seed=seed)
            run_baseline_job(
                BaselineJob(name=name, plan=plan, threads=threads, most_turns=turns, check_counts=not any_counts)
            )
        place = page or output / "baselines.md"
        items = {each.judged.name: len(each.judged.items) for each in read_asked_sets(data)}
        reports = read_reports([output / name for name in chosen])
        write_table(reports, place, rows, _write_command(words_of, only or ()), items, larger)
    typer.echo(f"wrote {place}")


def _write_command(options: Mapping[str, object], only: Sequence[str]) -> str:
    """The command as it was given, without defaults and folders."""
    told = [each if value is True else f"{each} {value}" for each, value in options.items() if value]
    return " ".join(["turnscore-train baselines --data DATA --output OUTPUT", *told, *(f"--only {n}" for n in only)])
