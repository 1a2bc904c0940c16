"""Line files: one line at a time, plain, packed or from a pipe."""

import gzip
import os

import pytest
from turnscore_client._files.rows import read_lines


def test_a_broken_packed_file_is_an_error_after_its_good_lines(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(os.urandom(100_000).hex().encode() + b"\n")[:-5_000])
    with pytest.raises(EOFError):
        list(read_lines(path))
