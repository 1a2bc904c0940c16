"""Blocks are committed whole or not at all: killed at every step, torn, gone on with, the output is one run's."""

import errno
import json
import os
from pathlib import Path

import pytest
from support.corpora import WordEngine, content_of, dialogue_rows, plan_of, turns_of, write_lines
from turnscore_corpus.engines.work import process_block
from turnscore_corpus.outputs.folder import ChangedJobError, OutputFolder, describe_job
from turnscore_corpus.outputs.stores import BadOutputError, LocalStore

ROWS = [*dialogue_rows(5), "torn", {"turns": turns_of("hi", " ", "so", "fine")}, *dialogue_rows(3, begin=5)]


class KilledError(BaseException):
    """The process is gone: nothing behind it is done, not even what catches errors."""


@pytest.fixture
def made(tmp_path):
    return plan_of(write_lines(tmp_path / "a.jsonl", ROWS), 4)


def begin(made, place, engine=None):
    return OutputFolder.begin(str(place), describe_job(made, engine or WordEngine(), {}, 4))


def go_on(made, place):
    """What a run does, without its lock; the blocks that it did."""
    engine = WordEngine()
    output = begin(made, place, engine)
    committed = output.committed()
    output.clean(committed.values())
    left = [block for block in made.blocks if block.number not in committed]
    return [process_block(block, engine, output).block for block in left]


def files_in(folder):
    """All of it but the times in the manifests."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            raw = path.read_bytes()
            if path.parent.name == "manifests":
                raw = json.dumps({**json.loads(raw), "seconds": 0}).encode()
            found[path.relative_to(folder).as_posix()] = raw
    return found


def steps(monkeypatch, kill_at):
    """Every call to the system on the way to the disk, in order; instead of that one, or behind it, the process dies.

    Even numbers die before the call has done anything, odd ones as soon as it has done its work.
    """
    told = []

    def wrapped(name, call):
        def step(*arguments):
            told.append(name)
            if len(told) - 1 == kill_at // 2 and kill_at % 2 == 0:
                raise KilledError
            done = call(*arguments)
            if len(told) - 1 == kill_at // 2:
                raise KilledError
            return done

        return step

    monkeypatch.setattr(os, "fsync", wrapped("fsync", lambda _: None))
    monkeypatch.setattr(os, "replace", wrapped("replace", os.replace))
    return told


def test_killed_at_any_step_the_same_command_writes_what_one_run_writes(tmp_path, monkeypatch):
    made = plan_of(write_lines(tmp_path / "a.jsonl", ROWS[3:7]), 2)
    assert go_on(made, tmp_path / "whole") == [0, 1]
    whole = files_in(tmp_path / "whole")
    deaths = 0
    for kill_at in range(1000):
        place = tmp_path / f"killed{kill_at}"
        with monkeypatch.context() as patched:
            steps(patched, kill_at)
            try:
                go_on(made, place)
            except KilledError:
                deaths += 1
            else:
                break
        assert _manifests_that_lie(place) == []
        go_on(made, place)
        assert files_in(place) == whole, kill_at
    assert deaths == 2 * 3 * (1 + 3 + 4)  # the job; a block of two tables, one of three; and their manifests


def _manifests_that_lie(place):
    found = []
    for path in (place / "manifests").glob("[!.]*.json"):
        tables = json.loads(path.read_text())["tables"].values()
        found += [each["name"] for each in tables if (place / each["name"]).stat().st_size != each["size_bytes"]]
    return found


def torn_at(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    "name", ["manifests/part-0000001.json", "turns/part-0000001.parquet", "set_aside/part-0000001.parquet"]
)
@pytest.mark.parametrize("harm", [torn_at, Path.unlink])
def test_a_block_with_a_torn_or_missing_file_is_done_again_and_no_other(name, harm, made, tmp_path):
    go_on(made, tmp_path / "out")
    whole = files_in(tmp_path / "out")
    harm(tmp_path / "out" / name)
    assert go_on(made, tmp_path / "out") == [1]
    assert files_in(tmp_path / "out") == whole
    assert go_on(made, tmp_path / "out") == []


def test_every_row_is_in_one_place_and_says_where(made, tmp_path):
    go_on(made, tmp_path / "out")
    found = content_of(tmp_path / "out")
    assert [row["row"] for row in found["dialogues"]] == [1, 2, 3, 4, 5, 7, 8, 9, 10]
    assert [(row["row"], row["turn"]) for row in found["set_aside"]] == [(6, None), (7, 1)]
    spoken = sum(turn["speaker"] == "system" for row in ROWS if isinstance(row, dict) for turn in row["turns"])
    assert len(found["turns"]) == spoken - 1
    assert len({(row["row"], row["index"]) for row in found["turns"]}) == spoken - 1
    assert [row["index"] for row in found["turns"] if row["row"] == 7] == [3]


def test_what_a_scorer_cannot_compute_and_what_the_engine_refuses_is_set_aside(tmp_path):
    rows = [{"turns": turns_of("hi", "broken", "so", "fine")}, {"turns": turns_of("hi", "refused")}]
    made = plan_of(write_lines(tmp_path / "a.jsonl", rows))
    go_on(made, tmp_path / "out")
    found = content_of(tmp_path / "out")
    assert [(each["row"], each["turn"], each["scorer"], each["reason"]) for each in found["set_aside"]] == [
        (1, 1, "words", "no number"), (2, None, None, "the engine refuses it"),
    ]  # fmt: skip
    assert [each["index"] for each in found["turns"]] == [3]
    [dialogue] = found["dialogues"]
    assert (dialogue["scored"], dialogue["turns"], dialogue["words_turns"]) == (1, 4, 1)


def renamed(folder):
    return plan_of((folder / "a.jsonl").rename(folder / "b.jsonl"), 4), WordEngine()


def other_line(folder):
    return plan_of(write_lines(folder / "a.jsonl", [*ROWS[:-1], dialogue_rows(1, begin=90)[0]]), 4), WordEngine()


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (other_line, r"input\..*/a\.jsonl\.digest was"),
        (renamed, r"input\..*/a\.jsonl is missing; input\..*/b\.jsonl is added"),
        (lambda folder: (plan_of(folder / "a.jsonl", 4, day="at"), WordEngine()), r"columns\.day was None, is at"),
        (lambda folder: (plan_of(folder / "a.jsonl", 3), WordEngine()), "blocks was 3, is 4"),
        (lambda folder: (plan_of(folder / "a.jsonl", 4), WordEngine(version="2")), "was words:1.*, is words:2"),
        (lambda folder: (plan_of(folder / "a.jsonl", 4), WordEngine(("words", "more"))), r"models\.more is added"),
    ],
)  # fmt: skip
def test_another_job_is_refused_in_the_same_folder_and_what_differs_is_named(change, difference, made, tmp_path):
    go_on(made, tmp_path / "out")
    whole = files_in(tmp_path / "out")
    other, engine = change(tmp_path)
    with pytest.raises(ChangedJobError, match=difference):
        begin(other, tmp_path / "out", engine)
    assert files_in(tmp_path / "out") == whole


def test_a_folder_that_is_no_run_s_is_refused(made, tmp_path):
    write_lines(tmp_path / "file", [])
    with pytest.raises(BadOutputError, match="is a file; the output is a folder"):
        begin(made, tmp_path / "file")
    (tmp_path / "other" / "turns").mkdir(parents=True)
    (tmp_path / "other" / "turns" / "mine.parquet").write_bytes(b"precious")
    with pytest.raises(BadOutputError, match="this command did not write it"):
        begin(made, tmp_path / "other")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "job.json").write_text('{"form": 1, "inp')
    with pytest.raises(BadOutputError, match=r"job\.json is torn"):
        begin(made, tmp_path / "torn")


def test_an_object_store_holds_the_same_and_a_block_without_manifest_is_done_again(made, tmp_path, bucket):
    assert go_on(made, bucket) == [0, 1, 2]
    go_on(made, tmp_path / "out")
    store = begin(made, bucket).store
    for table in ("turns", "dialogues", "set_aside"):
        names = store.sizes(table)
        assert names == LocalStore(str(tmp_path / "out")).sizes(table)
        assert all(store.get(name) == (tmp_path / "out" / name).read_bytes() for name in names)
    store.remove("manifests/part-0000002.json")
    assert go_on(made, bucket) == [2]


def test_a_full_disk_is_named_with_the_file_and_nothing_half_written_keeps_it_full(tmp_path, monkeypatch):
    def fill(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fill)
    with pytest.raises(OSError, match=r"No space left on device: '.*turns/part-0'"):
        LocalStore(str(tmp_path)).put("turns/part-0", b"rows")
    assert list((tmp_path / "turns").iterdir()) == []
