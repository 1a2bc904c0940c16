"""Line files: one line at a time, plain, packed or from a pipe."""

import gzip
import os
import threading

import pytest
from turnscore_client._files.rows import read_lines


def test_lines_are_numbered_and_tell_how_far_reading_has_come(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\nthree")
    lines = list(read_lines(path))
    assert [(line.number, line.raw.strip()) for line in lines] == [(1, b"one"), (2, b"two"), (3, b"three")]
    assert lines[-1].position_bytes == path.stat().st_size


def test_a_packed_file_is_unpacked_and_measured_as_it_lies(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"one\n" * 5000))
    lines = list(read_lines(path))
    assert len(lines) == 5000
    assert lines[-1].position_bytes == path.stat().st_size


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


def test_a_pipe_can_be_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    assert [line.raw for line in read_lines(path)] == [b"one\n", b"two\n"]
    writer.join()
