"""A run: plans, locks, resumes where an earlier one stopped, and reports the totals. Knows no option."""

import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import typer

from turnscore_corpus.blocks import TurnEngine
from turnscore_corpus.commands.progress import Progress
from turnscore_corpus.engines.local_engine import run_here, run_processes
from turnscore_corpus.engines.work import EngineChoice, Work
from turnscore_corpus.errors import StoppedError
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.input_files import InputFile
from turnscore_corpus.inputs.plan import BLOCK_DIALOGUES, Plan, make_plan
from turnscore_corpus.outputs.jobs import describe_job
from turnscore_corpus.outputs.locks import hold_folder
from turnscore_corpus.outputs.manifests import BlockManifest
from turnscore_corpus.outputs.output_folder import OutputFolder
from turnscore_corpus.outputs.stores import open_store

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
    run_elsewhere: RunElsewhere | None = None
    """Runs the work on another engine than this machine's processes."""
    open_engine: Callable[[], TurnEngine] | None = None
    """Replaces the choice's engine, in tests."""


def run_job(job: CorpusJob) -> dict[str, float]:
    """Scores what the output does not hold yet; returns the totals once every block is committed.

    Raises CorpusError, BundleError, DeviceError, OptionsError; StoppedError where repeating the command resumes.
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
            raise StoppedError("interrupted") from None
        return _finish(output, plan)


def _do(job: CorpusJob, work: Work, engine: TurnEngine) -> None:
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
    """The totals of a finished run. Raises StoppedError where a block has no manifest."""
    committed = output.committed()
    missing = [block.number for block in plan.blocks if block.number not in committed]
    if missing:
        raise StoppedError(f"{len(missing)} blocks were not committed, the first of them block {missing[0]}")
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
