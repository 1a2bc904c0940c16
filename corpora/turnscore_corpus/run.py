"""A run of `turnscore corpus score`: plans, resumes, reports its progress, and says what stopped it."""

import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import typer
from turnscore_core.engine import Engine, OptionsError
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_models import BundleError

from turnscore_corpus.engines.work import EngineChoice, Work, run_here, run_processes
from turnscore_corpus.errors import BadColumnsError, CorpusError, RunStoppedError
from turnscore_corpus.inputs.files import Columns, InputFile
from turnscore_corpus.inputs.plan import BLOCK_DIALOGUES, Plan, make_plan
from turnscore_corpus.outputs.folder import BlockManifest, OutputFolder, describe_job
from turnscore_corpus.outputs.stores import hold_folder, open_store

STOPPED = 3  # the exit code of a run that the same command resumes
_USAGE = 2


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
        raise typer.Exit(_USAGE) from None
    except (CorpusError, BundleError, DeviceError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


PAUSE_SECONDS = 10.0  # Seconds between two lines of a log. As Ray Data and `turnscore score` do.
TERMINAL_SECONDS = 1.0

Clock = Callable[[], float]
Tell = Callable[[str], object]


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)


class Progress:
    def __init__(self, rows: int, rows_done: int, *, clock: Clock = time.monotonic, tell: Tell = _to_stderr) -> None:
        """`rows` counts all rows, `rows_done` those of earlier runs."""
        self._rows, self._rows_before = rows, rows_done
        self._clock, self._tell = clock, tell
        self._began_at = self._told_at = clock()
        self._pause = TERMINAL_SECONDS if sys.stderr.isatty() else PAUSE_SECONDS
        self.rows = self.dialogues = self.turns = self.set_aside = self.computed = 0

    def note(self, block: BlockManifest) -> None:
        """Counts a block that was committed."""
        self.rows += block.rows
        self.dialogues += block.dialogues
        self.turns += block.turns
        self.set_aside += block.set_aside
        self.computed += block.turns_computed
        if self._clock() - self._told_at >= self._pause:
            self._told_at = self._clock()
            self._tell(self.line())

    @property
    def seconds(self) -> float:
        return max(self._clock() - self._began_at, 1e-9)

    def line(self) -> str:
        """One line on how far the run is."""
        done = self._rows_before + self.rows
        told = [f"{done:,} of {self._rows:,} rows ({100 * done / max(self._rows, 1):.0f} %)"]
        told.append(f"{self.turns / self.seconds:,.0f} turns per second")
        if self.rows:
            told.append(f"{_span((self._rows - done) * self.seconds / self.rows)} left")
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
    totals = _totals(committed.values())
    output.finish(totals)
    return totals


def _totals(manifests: Collection[BlockManifest]) -> dict[str, float]:
    """The sums over all blocks."""
    names = ("rows", "dialogues", "turns", "turns_computed", "set_aside", "seconds")
    return {"blocks": len(manifests), **{name: sum(getattr(each, name) for each in manifests) for name in names}}


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
