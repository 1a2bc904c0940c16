"""Scores a block: its rows are read, scored and committed as one. Every engine calls this."""

import gc
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from turnscore_core.dialogues import Dialogue
from turnscore_core.engine import Engine

from turnscore_corpus.inputs.dialogues import InputDialogue, Read, SetAside, read_dialogues
from turnscore_corpus.inputs.formats import RecordReader
from turnscore_corpus.inputs.plan import Block
from turnscore_corpus.outputs.folder import BlockManifest, OutputFolder
from turnscore_corpus.outputs.tables import BlockRows


@contextmanager
def resting_collector() -> Iterator[None]:
    """Pauses the collector inside the block, and restores it however the block ends.

    A block makes no cycles: reference counts free what it holds. The collector's walks took half of the CPU time that a
    block costs besides the runtime: 0.07 of 0.15 ms per turn (a core of an AMD EPYC, 2026-11-22).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


MOST_CHARS = 4_000_000
"""Characters that are scored in one call: one of the largest dialogues is twice that, a block of common ones a fifth.
The memory of a call is in proportion to it."""


class _Readers(threading.local):
    """One reader for each thread: in a packed file the next block begins where the last one ended."""

    def __init__(self) -> None:
        self.reader = RecordReader()


_readers = _Readers()


def process_block(block: Block, engine: Engine, output: OutputFolder) -> BlockManifest:
    """Scores a block and commits it whole; a second run writes the same. Python's cyclic collector rests meanwhile.

    What cannot be scored goes to the side table. Raises BadInputError where the file differs from the plan, and OSError
    where the output cannot be written.
    """
    started_at, computed_before = time.monotonic(), engine.turns_computed
    rows = BlockRows(block.file.place, engine.models)
    with resting_collector():
        records = _readers.reader.read(block.file, block.columns, block.start, block.rows, block.offset)
        for some in _in_calls(read_dialogues(records, block.columns, engine.limits)):
            asked = [each for each in some if isinstance(each, InputDialogue)]
            results = iter(engine.score([Dialogue(each.id, each.turns) for each in asked]) if asked else ())
            for each in some:
                if isinstance(each, SetAside):
                    rows.set_aside(each)
                else:
                    rows.add(each, next(results))
        return output.commit(
            block,
            rows.tables(),
            turns_computed=engine.turns_computed - computed_before,
            seconds=time.monotonic() - started_at,
        )


def _in_calls(found: Iterable[Read]) -> Iterator[list[Read]]:
    """The dialogues in lists of at most MOST_CHARS characters."""
    some: list[Read] = []
    chars = 0
    for each in found:
        size = each.chars if isinstance(each, InputDialogue) else 0
        if some and chars + size > MOST_CHARS:
            yield some
            some, chars = [], 0
        some.append(each)
        chars += size
    if some:
        yield some
