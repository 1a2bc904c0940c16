"""`turnscore corpus score` and `turnscore corpus report`: options, and a run's plan, progress, resumption and end."""

import json
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from pydantic import TypeAdapter, ValidationError
from turnscore_client import _defaults
from turnscore_client._command.registry import find_engine
from turnscore_client._files import runs, scoring
from turnscore_client._options import Options
from turnscore_client._retry import SystemClock
from turnscore_core.engine import OptionsError, choose_bundles
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_models.manifest import BundleError
from turnscore_wire import CacheNamespace, Speaker, describe_refusal

from turnscore_corpus.engines import work
from turnscore_corpus.inputs import files
from turnscore_corpus.inputs.files import Columns, InputFile
from turnscore_corpus.inputs.plan import BLOCK_DIALOGUES, Plan, make_plan
from turnscore_corpus.outputs.folder import BlockEngine, BlockManifest, OutputFolder, describe_job
from turnscore_corpus.outputs.stores import hold_folder, open_store

RunElsewhere = Callable[[work.Work], None]


@dataclass(frozen=True, kw_only=True)
class CorpusJob:
    """What is scored, how, and where the output goes."""

    files: list[InputFile]
    output: str
    columns: Columns
    open_engine: Callable[[], BlockEngine]
    options: Options = field(default_factory=dict)
    block_dialogues: int = BLOCK_DIALOGUES
    workers: int = 1
    run_elsewhere: RunElsewhere | None = None  # runs the work on another engine than this machine's processes


def run_job(job: CorpusJob) -> dict[str, float]:
    """Scores what the output does not hold yet; returns the totals once every block is committed.

    Raises CorpusError, BundleError, DeviceError, OptionsError; StoppedError where repeating the command resumes.
    """
    plan = make_plan(job.files, job.columns, job.block_dialogues)
    try:
        with hold_folder(job.output, open_store(job.output)), runs.interruptible(signal.default_int_handler):
            with closing(job.open_engine()) as engine:
                described = describe_job(plan, engine, job.options, job.block_dialogues)
                output = OutputFolder.begin(job.output, described)
                committed = output.committed()
                output.clean(committed.values())
                if committed:
                    typer.echo(f"turnscore: {len(committed)} of {len(plan.blocks)} blocks are done; resuming", err=True)
                _do(job, plan, output, committed, engine)
            return _finish(output, plan)
    except KeyboardInterrupt:
        raise runs.StoppedError("interrupted") from None


def _do(
    job: CorpusJob, plan: Plan, output: OutputFolder, committed: Mapping[int, BlockManifest], engine: BlockEngine
) -> None:
    left = [block for block in plan.blocks if block.number not in committed]
    if not left:
        return
    before = sum(each.rows for each in committed.values())
    done: Counter[str] = Counter()
    with runs.show_progress("turns", plan.rows, SystemClock(), done=before) as note:

        def count(block: BlockManifest) -> None:
            done.update(rows=block.rows, turns=block.turns, set_aside=block.set_aside)
            more = f"{done['set_aside']:,} set aside" if done["set_aside"] else ""
            note(before + done["rows"], done["turns"], more)

        rest = work.Work(blocks=left, open_engine=job.open_engine, output=output, options=job.options, on_block=count)
        if job.run_elsewhere is None and min(job.workers, len(left)) == 1:
            for block in left:
                count(work.process_block(block, engine, output, job.options))
            return
        engine.close()  # its memory is the workers'
        if job.run_elsewhere is not None:
            job.run_elsewhere(rest)
        else:
            work.run_processes(rest, job.workers)


def _finish(output: OutputFolder, plan: Plan) -> dict[str, float]:
    """The totals of a finished run. Raises StoppedError where a block has no manifest."""
    committed = output.committed()
    missing = [block.number for block in plan.blocks if block.number not in committed]
    if missing:
        raise runs.StoppedError(f"{len(missing)} blocks were not committed, the first of them block {missing[0]}")
    names = ("rows", "dialogues", "turns", "turns_computed", "set_aside", "seconds")
    sums = {name: sum(getattr(each, name) for each in committed.values()) for name in names}
    totals = {"blocks": len(committed), **sums}
    output.finish(totals)
    return totals


app = typer.Typer(no_args_is_help=True, add_completion=False, help="Score corpora of dialogues.")


Text = str | None


def _input(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Input")


def _scoring(name: str, text: str, **more: Any) -> Any:
    return typer.Option(name, help=text, rich_help_panel="Scoring", **more)


def _work(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Work", **more)


_INPUTS = (
    "Files or folders of Parquet (.parquet, .pq), JSON lines (.jsonl, .ndjson, .json) or CSV, the latter two also as "
    ".gz or .zst; paths, or addresses such as s3://bucket/folder."
)
_OPTIONS_HELP = 'Options by scorer, as JSON or a file of it: {"fed": {"qualities": ["fluent"]}}.'
_ADDRESS = "A Ray cluster's address, or `auto` on one of its nodes; default: Ray here, for this run."
_WORKERS = "Most processes, each of one thread; default: the usable CPUs, on Ray as many as fit."
_NAMESPACE = "Cache namespace; a service uses `default`."
_MOST_TOKENS = "Maximum tokens per batch; default: the device's."
_REDIS = "A Redis that keeps scores of equal turns: its address, or a file that holds it."


_OF_ENGINES = ("models", "redis", "redis_namespace", "device", "max_batch_tokens", "address", "workers")
_OF_SERVICE = ("api_key", "concurrency", "timeout", "wait", "ca_file", "cert_file", "key_file")


@app.command()
def score(
    ctx: typer.Context,
    inputs: Annotated[list[str], typer.Argument(help=_INPUTS, metavar="INPUT...")],
    output: Annotated[str, typer.Argument(help="The folder to write, or to resume in: a path or an address.")],
    format: Annotated[files.Format | None, _input("The format of files whose ending does not name it.")] = None,  # noqa: A002
    row: Annotated[
        files.RowHolds, _input("What a row holds: a `dialogue`, or one `turn` next to its others.")
    ] = "dialogue",
    id_column: Annotated[Text, _input("The dialogue's name; default: `id`; `dialogue` where rows are turns.")] = None,
    turns_column: Annotated[Text, _input("Turns, {speaker, text}: a list or JSON; default: `turns`.")] = None,
    messages_column: Annotated[Text, _input("OpenAI's chat messages: a list or JSON; default: `messages`.")] = None,
    speaker_column: Annotated[str, _input("Where a row is a turn: the column of its speaker.")] = "speaker",
    text_column: Annotated[str, _input("Where a row is a turn: the column of its text.")] = "text",
    order_column: Annotated[Text, _input("Where a row is a turn: numbers that order a dialogue's turns.")] = None,
    speakers: Annotated[Text, _input("Other names than `user` and `system`, such as `human=user,bot=system`.")] = None,
    system_column: Annotated[Text, _input("Column of the chatbot's name, for the report.")] = None,
    day_column: Annotated[Text, _input("Column of the dialogue's day or time, for the report.")] = None,
    scorers: Annotated[Text, _scoring("--scorers", "Scorers, separated by commas; default: all but stand-ins.")] = None,
    scorer_options: Annotated[Text, _scoring("--options", _OPTIONS_HELP)] = None,
    models: Annotated[Text, _scoring("--models", "Bundles: names, or folders with a /; default: the starters.")] = None,
    redis: Annotated[Text, _scoring("--redis", _REDIS)] = None,
    redis_namespace: Annotated[str, _scoring("--redis-namespace", _NAMESPACE)] = work.NAMESPACE,
    device: Annotated[str, _scoring("--device", "`cpu`, `auto`, or a device such as `cuda:0`.")] = "cpu",
    max_batch_tokens: Annotated[int | None, _scoring("--max-batch-tokens", _MOST_TOKENS, min=1)] = None,
    engine: Annotated[str, _work("`local`, `ray`, or a running service's address.")] = "local",
    address: Annotated[Text, _work(_ADDRESS)] = None,
    workers: Annotated[int | None, _work(_WORKERS, min=1)] = None,
    block_dialogues: Annotated[int, _work("Dialogues that are committed together.", min=1)] = BLOCK_DIALOGUES,
    api_key: runs.ApiKey = None,
    concurrency: runs.Concurrency = None,
    timeout: runs.Timeout = _defaults.TIMEOUT_SECONDS,
    wait: runs.Wait = _defaults.WAIT_SECONDS,
    ca_file: runs.CaFile = None,
    cert_file: runs.CertFile = None,
    key_file: runs.KeyFile = None,
) -> None:
    """Score the system turns of the input, and for scorers of user turns the user's, into tables of Parquet.

    Repeat the command to resume a stopped run: what is committed is not scored again. Rows that cannot be scored stand
    in the table `set_aside`, with the reason. Exit code 0: done; 1: refused or failed; 3: stopped, repeat the command.
    """
    if turns_column is not None and messages_column is not None:
        raise typer.BadParameter("give either --messages-column or --turns-column", param_hint="--messages-column")
    columns = Columns(
        row=row, id=id_column, turns=turns_column, messages=messages_column, speaker=speaker_column, text=text_column,
        order=order_column, speakers=_read_speakers(speakers), system=system_column, day=day_column,
    )  # fmt: skip
    asked, named = runs.split_names(scorers, "--scorers"), runs.split_names(models, "--models")
    options = _read_options(scorer_options)
    if is_service := runs.is_service(engine):
        runs.refuse_options(ctx, _OF_ENGINES, "does not apply to a service")
        client = runs.open_client(engine, api_key, timeout, (ca_file, cert_file, key_file), max_retries=0)
        most, workers = concurrency or _defaults.CONCURRENCY, 1
        patient = scoring.patient_with(client, asked, most, (timeout, wait), options=options or None)
        open_engine: Callable[[], BlockEngine] = partial(work.ServiceEngine, client, patient, asked)
    else:
        runs.refuse_options(ctx, _OF_SERVICE, "needs a service's address in --engine")
        open_engine = work.EngineChoice(
            models=named, scorers=asked, options=options, device=device, max_batch_tokens=max_batch_tokens,
            redis=_read_redis(redis), namespace=_read_namespace(redis_namespace),
        ).open  # fmt: skip
    run_elsewhere = _choose_elsewhere(ctx, engine, address, workers, device)
    with runs.reported_errors(
        files.CorpusError, BundleError, DeviceError, refusals=(files.BadColumnsError, OptionsError)
    ):
        if not is_service:
            choose_bundles(named, asked)  # what is wrong with it is found before anything is read
        files.refuse_within(inputs, output)
        job = CorpusJob(
            files=files.find_files(inputs, format), output=output, columns=columns, open_engine=open_engine,
            options=options, block_dialogues=block_dialogues, run_elsewhere=run_elsewhere,
            workers=workers or (usable_cpus() if device == "cpu" else 1),
        )  # fmt: skip
        totals = run_job(job)
    told = f"{totals['turns']:,.0f} turns of {totals['dialogues']:,.0f} dialogues are in {output}"
    typer.echo(f"turnscore: {told}; set aside: {totals['set_aside']:,.0f}", err=True)


@app.command()
def report(
    output: Annotated[str, typer.Argument(help="A folder that `score` wrote or is still writing.")],
    html: Annotated[Path | None, typer.Option(dir_okay=False, help="Also write an HTML page to this file.")] = None,
) -> None:
    """Summarise the scores by scorer, system and day, what drifted, and the worst and best dialogues."""
    try:
        from turnscore_assessment.rendering import print_page, to_html

        from turnscore_corpus.report import build_page, read_corpus
    except ModuleNotFoundError as error:
        typer.echo(f"turnscore: a report needs {error.name}: install turnscore-assessment", err=True)
        raise typer.Exit(1) from None

    with runs.reported_errors(files.CorpusError):
        page = build_page(read_corpus(output), shlex.join(["turnscore", *sys.argv[1:]]))
    print_page(page)
    if html is not None:
        html.write_text(to_html(page), encoding="utf-8")


def _read_speakers(text: str | None) -> tuple[tuple[str, Speaker], ...]:
    """Which speaker each name stands for."""
    found: list[tuple[str, Speaker]] = []
    for word in runs.split_names(text, "--speakers") or ():
        name, _, speaker = word.partition("=")
        if not name or speaker not in ("user", "system"):
            raise typer.BadParameter(f"{word!r} must be NAME=user or NAME=system", param_hint="--speakers")
        found.append((name, cast("Speaker", speaker)))
    return tuple(found)


def _read_redis(text: str | None) -> str | None:
    """The address, read from a file where one is named, so that no password stands on a command line."""
    if text is None:
        return None
    try:
        from turnscore_service.settings.cache import read_address
    except ModuleNotFoundError:
        text = "takes the service's package: install turnscore-corpus[redis]"
        raise typer.BadParameter(text, param_hint="--redis") from None
    try:
        found = text if "://" in text else Path(text).read_text(encoding="utf-8").strip()
        read_address(found)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--redis") from None
    return found


def _read_namespace(text: str) -> str:
    """The name, checked as the cache checks it."""
    try:
        return TypeAdapter(CacheNamespace).validate_python(text)
    except ValidationError as error:
        raise typer.BadParameter(describe_refusal(error)[1], param_hint="--redis-namespace") from None


def _read_options(text: str | None) -> dict[str, dict[str, Any]]:
    """Options by scorer, from JSON or from a file of JSON."""
    if text is None:
        return {}
    try:
        raw = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
        return TypeAdapter(dict[str, dict[str, Any]]).validate_python(json.loads(raw))
    except ValidationError as error:
        raise typer.BadParameter(": ".join(describe_refusal(error)), param_hint="--options") from None
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"is neither JSON nor a file of it: {error}", param_hint="--options") from None


def _choose_elsewhere(
    context: typer.Context, engine: str, address: str | None, workers: int | None, device: str
) -> RunElsewhere | None:
    """What runs the work on Ray; None for this process and its own. Raises a usage error where Ray is missing.

    On a CUDA device each worker takes one GPU.
    """
    if engine == "local" or runs.is_service(engine):
        runs.refuse_options(context, ["address"], "needs --engine ray")
        return None
    find_engine(engine)
    from turnscore_corpus.engines.ray_engine import run_on_ray

    gpus = 1.0 if device.startswith("cuda") else 0.0
    return partial(run_on_ray, work.RayChoice(address=address, workers=workers, gpus_per_worker=gpus))
