"""Reference files: what is a row, and what is refused with its line and field."""

import json
from pathlib import Path
from typing import Any

import pytest
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.references.evaluation import read_comparisons

ROW: dict[str, Any] = {"context_id": "c", "hypotheses": ["a b"], "references": ["a", "b"]}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_is_read_whole(tmp_path: Path):
    rated = {**ROW, "system": "s", "rating": 3, "other": "left alone"}
    [row] = read_comparisons(write(tmp_path / "f.jsonl", rated))
    assert (row.context_id, row.system, row.hypotheses, row.references, row.rating) == (
        "c",
        "s",
        ("a b",),
        ("a", "b"),
        3,
    )


def test_the_original_comes_first_and_stands_once(tmp_path: Path):
    path = tmp_path / "f.jsonl"
    assert read_comparisons(write(path, {**ROW, "reference": "b"}))[0].references == ("b", "a")
    assert read_comparisons(write(path, {**ROW, "reference": "c"}))[0].references == ("c", "a", "b")


def test_contexts_are_told_apart_by_their_texts(tmp_path: Path):
    said = [{"context": context, "response": "r", "references": ["x"]} for context in (["a", "b"], ["a"], ["a", "b"])]
    names = [row.context_id for row in read_comparisons(write(tmp_path / "f.jsonl", *said))]
    assert names[0] == names[2] != names[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hypotheses": []}, "hypotheses"),
        ({"hypotheses": ["x"] * 1001}, "hypotheses: tuple should have at most 1000"),
        ({"response": "a"}, "either hypotheses or response"),
        ({"references": ["x" * 100_001]}, "references.0: string should have at most 100000 characters"),
        ({"rating": float("nan")}, "rating"),
        ({"context_id": "", "context": []}, "context_id"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, change: dict[str, Any], said: str):
    path = write(tmp_path / "f.jsonl", ROW, {**ROW, **change})
    with pytest.raises(BadFileError) as refused:
        read_comparisons(path)
    assert "line 2" in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("content", [b"{\n", b"", b"\n \n"])
def test_what_is_no_file_of_rows_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "f.jsonl").write_bytes(content)
    with pytest.raises(BadFileError, match=r"f\.jsonl"):
        read_comparisons(tmp_path / "f.jsonl")
