"""`turnscore corpus score` and `turnscore corpus report`: options, and a run's plan, progress, resumption and end."""

import json
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from pydantic import TypeAdapter, ValidationError
from turnscore_core.engine import Engine, OptionsError, choose_bundles
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_models.manifest import BundleError
from turnscore_wire import CacheNamespace, Speaker, describe_refusal

from turnscore_corpus.engines.work import NAMESPACE, EngineChoice, RayChoice, Work, run_here, run_processes
from turnscore_corpus.errors import BadColumnsError, CorpusError, RunStoppedError
from turnscore_corpus.inputs.files import Columns, Format, InputFile, RowHolds, find_files, refuse_within
from turnscore_corpus.inputs.plan import BLOCK_DIALOGUES, Plan, make_plan
from turnscore_corpus.outputs.folder import BlockManifest, OutputFolder, describe_job
from turnscore_corpus.outputs.stores import hold_folder, open_store

STOPPED = 3  # the exit code of a run that the same command resumes


@contextmanager
def reported_errors() -> Iterator[None]:
    """Ends the command with a message and an exit code for an error that a user can act on."""
    try:
        yield
    except RunStoppedError as error:
        typer.echo(f"turnscore: stopped: {error}; repeat the command to resume", err=True)
        raise typer.Exit(STOPPED) from None
    except (BadColumnsError, OptionsError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except (CorpusError, BundleError, DeviceError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


class Progress:
    def __init__(self, rows: int, rows_done: int) -> None:
        """`rows` counts all rows, `rows_done` those of earlier runs."""
        self._rows, self._rows_before = rows, rows_done
        self._began_at = self._told_at = time.monotonic()
        # Seconds between two lines of a log. As Ray Data and `turnscore score` do.
        self._pause = 1.0 if sys.stderr.isatty() else 10.0
        self.rows = self.turns = self.set_aside = 0

    def note(self, block: BlockManifest) -> None:
        """Counts a block that was committed."""
        self.rows += block.rows
        self.turns += block.turns
        self.set_aside += block.set_aside
        if time.monotonic() - self._told_at >= self._pause:
            self._told_at = time.monotonic()
            typer.echo(self.line(), err=True)

    def line(self) -> str:
        """One line on how far the run is."""
        done, seconds = self._rows_before + self.rows, max(time.monotonic() - self._began_at, 1e-9)
        told = [f"{done:,} of {self._rows:,} rows ({100 * done / max(self._rows, 1):.0f} %)"]
        told.append(f"{self.turns / seconds:,.0f} turns per second")
        if self.rows:
            told.append(f"{_span((self._rows - done) * seconds / self.rows)} left")
        if self.set_aside:
            told.append(f"{self.set_aside:,} set aside")
        return "turnscore: " + ", ".join(told)


def _span(seconds: float) -> str:
    """A duration in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


RunElsewhere = Callable[[Work], None]


@dataclass(frozen=True, kw_only=True)
class CorpusJob:
    """What is scored, how, and where the output goes."""

    files: list[InputFile]
    output: str
    columns: Columns
    choice: EngineChoice
    block_dialogues: int = BLOCK_DIALOGUES
    workers: int = 1
    run_elsewhere: RunElsewhere | None = None  # runs the work on another engine than this machine's processes
    open_engine: Callable[[], Engine] | None = None  # replaces the choice's engine, in tests


def run_job(job: CorpusJob) -> dict[str, float]:
    """Scores what the output does not hold yet; returns the totals once every block is committed.

    Raises CorpusError, BundleError, DeviceError, OptionsError; RunStoppedError where repeating the command resumes.
    """
    plan = make_plan(job.files, job.columns, job.block_dialogues)
    with hold_folder(job.output, open_store(job.output)):
        open_engine = job.open_engine or job.choice.open
        engine = open_engine()
        described = describe_job(plan, engine.models, job.choice.options, job.block_dialogues)
        output = OutputFolder.begin(job.output, described)
        committed = output.committed()
        output.clean(committed.values())
        progress = Progress(plan.rows, sum(each.rows for each in committed.values()))
        if committed:
            typer.echo(f"turnscore: {len(committed)} of {len(plan.blocks)} blocks are done; resuming", err=True)
        left = [block for block in plan.blocks if block.number not in committed]
        work = Work(blocks=left, open_engine=open_engine, output=output, on_block=progress.note)
        try:
            with _interruptible():
                _do(job, work, engine)
        except KeyboardInterrupt:
            raise RunStoppedError("interrupted") from None
        return _finish(output, plan)


def _do(job: CorpusJob, work: Work, engine: Engine) -> None:
    if not work.blocks:
        return
    if job.run_elsewhere is None and min(job.workers, len(work.blocks)) == 1:
        run_here(work, engine)
        return
    if hasattr(engine, "close"):
        engine.close()  # its memory is the workers'
    if job.run_elsewhere is not None:
        job.run_elsewhere(work)
    else:
        run_processes(work, job.workers)


def _finish(output: OutputFolder, plan: Plan) -> dict[str, float]:
    """The totals of a finished run. Raises RunStoppedError where a block has no manifest."""
    committed = output.committed()
    missing = [block.number for block in plan.blocks if block.number not in committed]
    if missing:
        raise RunStoppedError(f"{len(missing)} blocks were not committed, the first of them block {missing[0]}")
    names = ("rows", "dialogues", "turns", "turns_computed", "set_aside", "seconds")
    sums = {name: sum(getattr(each, name) for each in committed.values()) for name in names}
    totals = {"blocks": len(committed), **sums}
    output.finish(totals)
    return totals


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lets SIGTERM end the run as SIGINT does."""
    before = None
    with suppress(ValueError):  # another thread than the main one
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


app = typer.Typer(no_args_is_help=True, add_completion=False, help="Score corpora of dialogues without a service.")


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
_WORKERS = "Most processes, each of one thread; default: the usable CPUs, on a Ray cluster as many as fit."
_REDIS = "A Redis that keeps scores of equal turns: its address, or a file that holds it."


@app.command()
def score(
    inputs: Annotated[list[str], typer.Argument(help=_INPUTS, metavar="INPUT...")],
    output: Annotated[str, typer.Argument(help="The folder to write, or to resume in: a path or an address.")],
    format: Annotated[Format | None, _input("The format of files whose ending does not name it.")] = None,  # noqa: A002
    row: Annotated[RowHolds, _input("What a row holds: a `dialogue`, or one `turn` next to its others.")] = "dialogue",
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
    redis_namespace: Annotated[str, _scoring("--redis-namespace", "A service's is `default`.")] = NAMESPACE,
    device: Annotated[str, _scoring("--device", "`cpu`, `auto`, or a device such as `cuda:0`.")] = "cpu",
    max_batch_tokens: Annotated[int | None, _scoring("--max-batch-tokens", "Default: as measured.", min=1)] = None,
    engine: Annotated[Literal["local", "ray"], _work("What processes the blocks.")] = "local",
    address: Annotated[Text, _work(_ADDRESS)] = None,
    workers: Annotated[int | None, _work(_WORKERS, min=1)] = None,
    block_dialogues: Annotated[int, _work("Dialogues that are committed together.", min=1)] = BLOCK_DIALOGUES,
) -> None:
    """Scores the system turns of the input, and for scorers of user turns the user's, into tables of Parquet.

    Repeat the command to resume a stopped run: what is committed is not scored again. Rows that cannot be scored stand
    in the table `set_aside`, with the reason. Exit code 0: done; 1: refused or failed; 3: stopped, repeat the command.
    """
    if turns_column is not None and messages_column is not None:
        raise typer.BadParameter("give either --messages-column or --turns-column", param_hint="--messages-column")
    run_elsewhere = _choose_elsewhere(engine, address, workers, device)
    columns = Columns(
        row=row, id=id_column, turns=turns_column, messages=messages_column, speaker=speaker_column, text=text_column,
        order=order_column, speakers=_read_speakers(speakers), system=system_column, day=day_column,
    )  # fmt: skip
    asked, named = _split(scorers, "--scorers"), _split(models, "--models")
    choice = EngineChoice(
        models=named, scorers=asked, options=_read_options(scorer_options), device=device,
        max_batch_tokens=max_batch_tokens, redis=_read_redis(redis), namespace=_read_namespace(redis_namespace),
    )  # fmt: skip
    with reported_errors():
        choose_bundles(named, asked)  # what is wrong with it is found before anything is read
        refuse_within(inputs, output)
        job = CorpusJob(
            files=find_files(inputs, format), output=output, columns=columns, choice=choice,
            block_dialogues=block_dialogues, run_elsewhere=run_elsewhere,
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
        typer.echo(f"error: a report needs {error.name}: install turnscore-assessment", err=True)
        raise typer.Exit(1) from None

    with reported_errors():
        page = build_page(read_corpus(output), shlex.join(["turnscore", *sys.argv[1:]]))
    print_page(page)
    if html is not None:
        html.write_text(to_html(page), encoding="utf-8")


def _split(text: str | None, option: str) -> tuple[str, ...] | None:
    """The words between commas. Raises a usage error for an empty one."""
    if text is None:
        return None
    found = tuple(each.strip() for each in text.split(","))
    if not all(found):
        raise typer.BadParameter("has an empty name", param_hint=option)
    return found


def _read_speakers(text: str | None) -> tuple[tuple[str, Speaker], ...]:
    """Which speaker each name stands for."""
    found: list[tuple[str, Speaker]] = []
    for word in _split(text, "--speakers") or ():
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


def _choose_elsewhere(engine: str, address: str | None, workers: int | None, device: str) -> RunElsewhere | None:
    """The engine's function; None for processes of this machine. Raises a usage error if Ray or an option is missing.

    On a CUDA device each worker takes one GPU.
    """
    if engine == "local":
        if address is not None:
            raise typer.BadParameter("needs --engine ray", param_hint="--address")
        return None
    try:
        from turnscore_corpus.engines.ray_engine import run_on_ray
    except ImportError as error:
        raise typer.BadParameter(
            f"ray cannot be imported ({error}); install turnscore-corpus with the extra `ray`", param_hint="--engine"
        ) from None
    gpus = 1.0 if device.startswith("cuda") else 0.0
    return partial(run_on_ray, RayChoice(address=address, workers=workers, gpus_per_worker=gpus))
