"""`turnscore corpus score`: turns the options of a run into a job."""

from typing import Annotated, get_args

import typer
from turnscore_core.inference.devices import usable_cpus

from turnscore_corpus.commands import options as of
from turnscore_corpus.commands.elsewhere import ENGINES, choose_elsewhere
from turnscore_corpus.commands.reported_errors import reported_errors
from turnscore_corpus.engines.bundles import choose_bundles
from turnscore_corpus.engines.work import NAMESPACE
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.columns import RowHolds as RowHoldsName
from turnscore_corpus.inputs.input_files import find_files, refuse_within
from turnscore_corpus.inputs.plan import BLOCK_DIALOGUES

Engine = Annotated[str, typer.Option(help=f"What processes the blocks: {', '.join(ENGINES)}.", rich_help_panel="Work")]
Address = Annotated[
    str | None,
    typer.Option(help="A Ray cluster's address, or `auto` on one of its nodes; default: Ray here, for this run.",
                 rich_help_panel="Work"),
]  # fmt: skip
Workers = Annotated[
    int | None,
    typer.Option(help="Most processes, each with an engine of one thread; default: the usable CPUs, on a Ray "
                 "cluster as many as fit.", min=1, rich_help_panel="Work"),
]  # fmt: skip
BlockDialogues = Annotated[
    int,
    typer.Option(help="Dialogues that are committed together: what a killed worker loses.", min=1,
                 rich_help_panel="Work"),
]  # fmt: skip


def score(
    inputs: of.Inputs,
    output: of.Output,
    format_name: of.FormatName = None,
    row: of.RowHolds = "dialogue",
    id_column: of.IdColumn = None,
    turns_column: of.TurnsColumn = None,
    messages_column: of.MessagesColumn = None,
    speaker_column: of.SpeakerColumn = "speaker",
    text_column: of.TextColumn = "text",
    order_column: of.OrderColumn = None,
    speakers: of.Speakers = None,
    system_column: of.SystemColumn = None,
    day_column: of.DayColumn = None,
    scorers: of.Scorers = None,
    scorer_options: of.Options = None,
    models: of.Models = None,
    redis: of.Redis = None,
    redis_namespace: of.RedisNamespace = NAMESPACE,
    device: of.Device = "cpu",
    max_batch_tokens: of.MaxBatchTokens = None,
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = None,
    block_dialogues: BlockDialogues = BLOCK_DIALOGUES,
) -> None:
    """Scores every system turn of the input into tables of Parquet.

    Repeat the command to resume a stopped run: what is committed is not scored again. Rows that cannot be scored stand
    in the table `set_aside`, with the reason. Exit code 0: done; 1: refused or failed; 3: stopped, repeat the command.
    """
    from turnscore_corpus.commands.run import CorpusJob, run_job
    from turnscore_corpus.engines.work import EngineChoice

    if turns_column is not None and messages_column is not None:
        raise typer.BadParameter("give either --messages-column or --turns-column", param_hint="--messages-column")
    elsewhere = choose_elsewhere(of.one_of(engine, ENGINES, "--engine"), address, workers, device)
    columns = Columns(
        row=of.one_of(row, get_args(RowHoldsName), "--row"),
        id=id_column, turns=turns_column, messages=messages_column, speaker=speaker_column, text=text_column,
        order=order_column, speakers=of.speakers_of(speakers), system=system_column, day=day_column,
    )  # fmt: skip
    format_given, asked = of.format_of(format_name), of.words(scorers, "--scorers")
    chosen, named = of.scorer_options(scorer_options), of.words(models, "--models")
    known, namespace = of.redis_address(redis), of.namespace_of(redis_namespace)
    with reported_errors():
        choose_bundles(named, asked)  # what is wrong with it is found before anything is read
        refuse_within(inputs, output)
        choice = EngineChoice(
            models=None if named is None else tuple(named), scorers=None if asked is None else tuple(asked),
            options=chosen, device=device, max_batch_tokens=max_batch_tokens,
            redis=known, namespace=namespace,
        )  # fmt: skip
        job = CorpusJob(
            files=find_files(inputs, format_given), output=output, columns=columns, choice=choice,
            block_dialogues=block_dialogues, run_elsewhere=elsewhere,
            workers=workers or (usable_cpus() if device == "cpu" else 1),
        )  # fmt: skip
        totals = run_job(job)
    told = f"{totals['turns']:,.0f} turns of {totals['dialogues']:,.0f} dialogues are in {output}"
    typer.echo(f"turnscore: {told}; set aside: {totals['set_aside']:,.0f}", err=True)
