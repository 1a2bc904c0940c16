"""The output: what it holds stays, whatever stopped the run, and nothing else is taken for it."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnscore_client._files.rows import RowOutput, open_rows, rows_in

FULL = Path("/dev/full")
NAMES = ["scores.jsonl", "scores.jsonl.gz"]


def rows(first, last):
    return [{"line": number, "id": f"n-{number}", "filler": "x" * (number % 7) * 40} for number in range(first, last)]


def write(path, added):
    with open_rows(path) as output:
        for row in added:
            output.append(row)


def content(path):
    raw = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(raw) if path.suffix == ".gz" else raw).splitlines()]


@pytest.mark.parametrize("name", NAMES)
@given(share=st.floats(0, 1))
def test_a_file_that_breaks_off_anywhere_keeps_its_whole_rows_and_goes_on(tmp_path_factory, name, share):
    path = tmp_path_factory.mktemp("cut") / name
    write(path, rows(1, 30))
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    kept = list(rows_in(path))
    assert kept == rows(1, len(kept) + 1)
    if path.suffix != ".gz":
        assert len(kept) == raw[: int(share * len(raw))].count(b"\n")
    write(path, rows(len(kept) + 1, 40))
    assert content(path) == rows(1, 40)
    assert [each.name for each in path.parent.iterdir()] == [name]


def test_a_packed_file_is_written_through_so_that_a_crash_leaves_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("turnscore_client._files.rows._PACK_SECONDS", 0.0)
    path = tmp_path / "scores.jsonl.gz"
    with open_rows(path) as output:
        for row in rows(1, 20):
            output.append(row)
        assert list(rows_in(path)) == rows(1, 20)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_is_named_with_the_file(tmp_path, name):
    path = tmp_path / name
    path.touch()
    with (
        pytest.raises(OSError, match=f"No space left on device: '.*{name}'"),
        FULL.open("ab", buffering=0) as full,
        RowOutput(path, full, is_new=False) as output,
    ):
        output.append({"line": 1})
