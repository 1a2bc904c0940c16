"""Word vectors of every form of file, and files that are broken."""

import gzip
import struct
from pathlib import Path

import pytest
from paper_systems.ruber import FileVectors
from turnscore_assessment.errors import ReferencesError
from turnscore_exporters.errors import ExporterError


def test_word_vectors_of_every_form_are_the_same(tmp_path: Path) -> None:
    table = {"hi": [1.0, 2.0, 3.0], "you": [0.5, -1.0, 0.25]}
    lines = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in table.items())
    (tmp_path / "glove.txt").write_text(lines)
    with gzip.open(tmp_path / "word2vec.txt.gz", "wt") as file:
        file.write("2 3\n" + lines)
    binary = b"".join(word.encode() + b" " + struct.pack("<3f", *row) + b"\n" for word, row in table.items())
    (tmp_path / "vectors.bin").write_bytes(b"2 3\n" + binary)
    for name in ("glove.txt", "word2vec.txt.gz", "vectors.bin"):
        vectors = FileVectors(tmp_path / name, ["hi", "you", "unknown"])
        assert vectors.of(["you", "unknown", "hi"]).tolist() == [table["you"], [0, 0, 0], table["hi"]]


def test_a_word_may_hold_blanks_as_in_gloves_largest_file(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("hi 1 2 3\n. . . 4 5 6\n")
    assert FileVectors(tmp_path / "glove.txt", [". . ."]).of([". . ."]).tolist() == [[4.0, 5.0, 6.0]]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"hi 1 2 3\nyou 1 2\n", "vector 2 has 2 numbers"),
        ("a.txt", b"hi 1 2 x\n", "line 1"),
        ("a.bin", b"hi 1 2 3\n", "must begin"),
        ("a.bin", b"2 3\nhi \x00\x00", "ends before"),
        ("a.txt", b"other 1 2\n", "a vector for none of 1 words"),
    ],
)
def test_a_broken_file_of_word_vectors_is_refused_by_its_place(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((ExporterError, ReferencesError), match=said):
        FileVectors(tmp_path / name, ["hi"])
