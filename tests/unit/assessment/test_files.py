"""JSON lines and CSV: what cannot be read is named; other programs read what is written, and no cell is a formula."""

import csv
import gzip
import io
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import LINE_CHARACTERS, read_csv, read_rows, to_csv, unguard
from turnscore_assessment.rendering import table_row

FORMULA = re.compile(r"[=+\-@\t\r\n]")
TEXTS = st.text(st.sampled_from("a1=+-@'\",;\r\n\t é\u2028"), max_size=8)
TABLES = st.lists(st.lists(TEXTS, min_size=3, max_size=3), min_size=1, max_size=6)


@settings(max_examples=300)
@given(TABLES)
@example([["hello\r=1+1", "a\rb", "'=1"], ["\r\n", "''=1", "-1"]])
def test_any_text_is_read_back_and_is_no_formula(rows):
    written = to_csv(["a", "b", "c"], rows)
    read = list(csv.reader(io.StringIO(written, newline=""), strict=True))
    assert [[unguard(cell) for cell in row] for row in read] == [["a", "b", "c"], *rows]
    assert not [cell for row in read for cell in row if FORMULA.match(cell)]
    parsing = arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    texts = arrow_csv.ConvertOptions(column_types=dict.fromkeys("abc", "string"), strings_can_be_null=False)
    table = arrow_csv.read_csv(io.BytesIO(written.encode()), parse_options=parsing, convert_options=texts)
    assert [list(row.values()) for row in table.to_pylist()] == read[1:]


def test_numbers_stay_numbers_and_no_name_breaks_a_table_of_markdown():
    for number in (-1, -0.5, 1e-7, 12):
        assert to_csv(["value"], [[number]]) == f"value\n{number!r}\n"
    assert table_row(["a|b\nc", 1]) == "| a\\|b c | 1 |"


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"a,b\n1,2\n" + b"x" * LINE_CHARACTERS + b"y,3\n", 3), (b"a,b\n\xff,1\n", 1)],
    ids=["long", "no UTF-8"],
)
def test_a_csv_that_cannot_be_read_is_named(tmp_path, content, line):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(BadFileError, match=f"line {line}: cannot be read"):
        read_csv(tmp_path / "x.csv", ["a"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1}\n[1]\n', "line 2: is not a JSON object"),
        (b"\n{\n", "line 2: is not JSON"),
        (b"[" * 100_000, "line 1: is not JSON"),
        (b'{}\n{"a": ' + b"9" * 5000 + b"}\n", "line 2: is not JSON"),
        (b"\xff\xfe\n", "line 1: cannot be read"),
        (b"{}\n" + b"x" * (LINE_CHARACTERS + 1), "line 2: is longer than"),
    ],
    ids=["list", "cut", "deep", "long number", "no UTF-8", "long"],
)
def test_a_line_of_json_that_cannot_be_read_is_named(tmp_path, content, reason):
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(BadFileError, match=reason):
        list(read_rows(tmp_path / "x.jsonl"))


def test_packed_rows_are_unpacked_and_damaged_ones_refused(tmp_path):
    path, packed = tmp_path / "x.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 100)
    path.write_bytes(packed)
    assert len(list(read_rows(path))) == 100
    for damaged in (packed[:-9], packed[:12] + b"\xff" * 8 + packed[20:], packed[:4] + b"\xff" * 40):
        path.write_bytes(damaged)
        with pytest.raises(BadFileError, match="cannot be read"):
            list(read_rows(path))
