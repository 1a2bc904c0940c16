"""Line files: one line at a time, plain, packed or from a pipe."""

import gzip
import os

import pytest
from turnscore_client._files.rows import read_lines


def test_a_file_is_not_read_ahead_of_its_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 99 + b"\n")
    with path.open("ab") as more:
        for _ in range(50_000):
            more.write(b"x" * 99 + b"\n")
    lines = read_lines(path)
    next(lines)
    assert next(lines).position_bytes < path.stat().st_size / 10
    lines.close()


def test_a_broken_packed_file_is_an_error_after_its_good_lines(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(os.urandom(100_000).hex().encode() + b"\n")[:-5_000])
    with pytest.raises(EOFError):
        list(read_lines(path))
