"""What `make bench-corpus` and `make cluster-corpus` say of what they saw."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from support.corpora import WordEngine, dialogue_rows, write_lines
from turnscore_bench.corpus.__main__ import WAYS as OFFERED
from turnscore_bench.corpus.__main__ import Measured, say_memory, tabulate
from turnscore_bench.corpus.same_content import DifferentContentError, count_same_rows
from turnscore_bench.corpus.watched_tree import Look, WatchedTree
from turnscore_bench.corpus.ways import WAYS
from turnscore_corpus.engines.work import EngineChoice
from turnscore_corpus.inputs.columns import Columns
from turnscore_corpus.inputs.files import find_files
from turnscore_corpus.run import CorpusJob, run_job

measured = partial(Measured, caption="a way", wall_seconds=10.0, tree_cpu_seconds=12.0, peak_bytes=300 * 2**20)


@pytest.fixture
def outputs(tmp_path: Path) -> tuple[Path, Path]:
    """The same corpus scored twice."""
    source = write_lines(tmp_path / "a.jsonl", dialogue_rows(9))
    for name in ("one", "other"):
        run_job(
            CorpusJob(
                files=find_files([str(source)]), output=str(tmp_path / name), columns=Columns(), choice=EngineChoice(),
                block_dialogues=4, open_engine=WordEngine,
            )
        )  # fmt: skip
    return tmp_path / "one", tmp_path / "other"


def test_equal_folders_have_their_rows_counted(outputs: tuple[Path, Path]):
    assert count_same_rows(*outputs) == {"turns": 13, "dialogues": 9, "set_aside": 0}


def test_a_block_that_is_missing_or_has_another_cell_is_named(outputs: tuple[Path, Path]):
    one, other = outputs
    shutil.copy(one / "turns" / "part-0000000.parquet", other / "turns" / "part-0000001.parquet")
    with pytest.raises(DifferentContentError, match=r"turns/part-0000001\.parquet differs"):
        count_same_rows(one, other)
    (other / "turns" / "part-0000001.parquet").unlink()
    with pytest.raises(DifferentContentError, match=r"turns/part-0000001\.parquet is in one folder alone"):
        count_same_rows(one, other)


def test_the_ways_that_are_offered_are_those_that_there_are():
    assert tuple(WAYS) == OFFERED


def test_each_way_stands_beside_the_bare_runtime_of_its_size():
    text = tabulate([measured(way=way, turns=1000, cpu_seconds=cpu) for way, cpu in (("local", 3.0), ("bare", 2.5))])
    assert [line.split(" | ")[3:5] for line in text.splitlines()[2:]] == [["2.50", "1.00"], ["3.00", "1.20"]]


def test_memory_over_time_is_said_of_large_corpora_with_who_held_it():
    held = {"run": 200 * 2**20, "daemons": 100 * 2**20, "object store": 2**10}
    small, large = (
        measured(way="ray", turns=turns, cpu_seconds=9.0, tenth_bytes=(2**20, 3 * 2**20), peak_by_holder=held)
        for turns in (1000, 100_000)
    )
    assert say_memory([small]) == []
    assert say_memory([small, large])[1] == (
        "- a way, 100,000 turns: 1 MiB at most in the second tenth of its CPU time, 3 in the last. "
        "At its peak: the run's process 200 MiB, its daemons 100 MiB, its object store less than 1 MiB."
    )


def test_the_most_of_a_tenth_is_that_of_its_cpu_seconds():
    tree = WatchedTree(pid=0, looks=[Look(cpu_seconds=at, bytes_by_holder={"run": int(at)}) for at in range(1, 101)])
    tree._cpu_seconds[0, 0.0] = 100.0
    assert (tree.most_bytes_in_tenth(1), tree.most_bytes_in_tenth(9), tree.fullest.bytes) == (20, 100, 100)
