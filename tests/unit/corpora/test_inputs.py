"""What is read of every format, what of it is scored, left out or set aside, and what is refused."""

import gzip
import io
import json

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from support.corpora import dialogue_rows, plan_of, read_all, write_lines
from turnscore_corpus.inputs import files, plan
from turnscore_corpus.inputs.dialogues import InputDialogue, SetAside
from turnscore_corpus.inputs.files import BadColumnsError, BadInputError, Columns, CorpusError, find_files


def dialogues_in(made):
    found = read_all(made)
    assert [each for each in found if isinstance(each, SetAside)] == []
    return [each for each in found if isinstance(each, InputDialogue)]


def written_as(name, folder, rows):
    path = folder / name
    if name.endswith(".parquet"):
        parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    elif ".csv" in name:
        cells = [
            {key: json.dumps(cell, indent=1) if key == "turns" else cell for key, cell in row.items()} for row in rows
        ]
        sink = pa.BufferOutputStream()
        csv.write_csv(pa.Table.from_pylist(cells), sink)
        raw = sink.getvalue().to_pybytes()
        path.write_bytes({".gz": gzip.compress}.get(path.suffix, bytes)(raw))
    else:
        write_lines(path, rows)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson.gz", "a.json.zst", "a.parquet", "a.csv", "a.csv.gz"])
def test_every_format_holds_the_same_dialogues(name, tmp_path):
    rows = dialogue_rows(11)
    made = plan_of(written_as(name, tmp_path, rows), 4, system="bot", day="at")
    assert [(block.start, block.rows) for block in made.blocks] == [(0, 4), (4, 4), (8, 3)]
    found = dialogues_in(made)
    assert [each.id for each in found] == [row["id"] for row in rows]
    assert [[turn.model_dump() for turn in each.turns] for each in found] == [row["turns"] for row in rows]
    assert [(each.row, each.system, each.day) for each in found] == [
        (place, row["bot"], row["at"][:10]) for place, row in enumerate(rows, start=1)
    ]


def test_rows_that_are_turns_make_dialogues_that_no_block_cuts(tmp_path):
    rows = [
        {"dialogue": f"d{number}", "n": 2 - turn, "speaker": who, "text": f"text {turn}", "bot": "b"}
        for number in range(5)
        for turn, who in ((1, "bot"), (2, "human"))
    ]
    path = written_as("a.csv", tmp_path, rows)
    columns = {"row": "turn", "order": "n", "system": "bot", "speakers": (("human", "user"), ("bot", "system"))}
    made = plan_of(path, 2, **columns)
    assert [(block.start, block.rows) for block in made.blocks] == [(0, 4), (4, 4), (8, 2)]
    found = dialogues_in(made)
    assert [each.id for each in found] == ["d0", "d1", "d2", "d3", "d4"]
    assert [turn.text for turn in found[0].turns] == ["text 2", "text 1"]  # by `n`
    assert (found[1].rows, found[1].row, found[1].system) == ([4, 3], 3, "b")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_dialogue_whose_turns_lie_apart_is_refused_as_it_would_be_scored_as_two(kind, tmp_path):
    rows = [{"dialogue": each, "speaker": "system", "text": "hi"} for each in ("d1", "d2", "d1")]
    path = written_as(f"a.{kind}", tmp_path, rows)
    with pytest.raises(BadInputError, match=r"the dialogue of row 1 goes on in row 3, behind another; sort"):
        plan_of(path, row="turn")


MISSING_COLUMNS = [
    ({"id": "nr"}, "--id-column", "nr"), ({"turns": "dialog"}, "--turns-column", "dialog"),
    ({"messages": "chat"}, "--messages-column", "chat"), ({"system": "model"}, "--system-column", "model"),
    ({"day": "date"}, "--day-column", "date"), ({"row": "turn"}, "--id-column", "dialogue"),
    ({"row": "turn", "id": "id"}, "--speaker-column", "speaker"),
    ({"row": "turn", "id": "id", "speaker": "bot"}, "--text-column", "text"),
    ({"row": "turn", "id": "id", "speaker": "bot", "text": "at", "order": "n"}, "--order-column", "n"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "option", "column"), MISSING_COLUMNS)
@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_a_column_that_is_not_there_is_named_with_those_that_are(name, given, option, column, tmp_path):
    path = written_as(name, tmp_path, dialogue_rows(3))
    with pytest.raises(BadColumnsError) as raised:
        plan_of(path, **given)
    assert str(raised.value) == f"{option}: {path} has no column {column!r}; it has id, turns, bot, at"


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_torn_file_is_refused_before_anything_is_scored(name, tmp_path):
    path = written_as(name, tmp_path, dialogue_rows(200))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadInputError, match=name):
        plan_of(path)


def test_a_file_that_shrank_since_it_was_planned_ends_its_block(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", dialogue_rows(5))
    made = plan_of(path)
    write_lines(path, dialogue_rows(2))
    with pytest.raises(BadInputError, match="ends at row 2; it was longer when the run began"):
        read_all(made)


WRONG_PLACES = [
    (["nowhere.jsonl"], "does not exist"),
    (["empty"], "holds no file that ends in"),
    (["a.txt"], "the ending names no format; give --format"),
    (["a.jsonl", "a.jsonl"], "is named twice"),
    (["a.parquet.gz"], "a Parquet file is packed inside"),
    (["empty.csv"], "is empty: its first line must name the columns"),
    (["twice.csv"], "two columns of its first line have one name"),
]


@pytest.mark.parametrize(("places", "message"), WRONG_PLACES)
def test_what_cannot_be_input_is_refused_by_its_name(places, message, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("a.jsonl", "a.txt", "a.parquet.gz"):
        write_lines(tmp_path / name, dialogue_rows(1))
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "twice.csv").write_text("id,turns,id\n")
    with pytest.raises(BadInputError, match=message):
        plan.make_plan(find_files([str(tmp_path / each) for each in places]), Columns())


def test_an_address_of_an_unknown_kind_and_one_with_a_password_are_refused():
    with pytest.raises(CorpusError, match=r"nosuch:// cannot be opened"):
        find_files(["nosuch://a.jsonl"])
    with pytest.raises(CorpusError, match="must not hold a password"):
        find_files(["s3://me:secret@bucket/a.jsonl"])


def test_lines_are_found_in_any_chunks_and_one_that_is_too_long_costs_no_memory(monkeypatch):
    class Stream(io.RawIOBase):
        def __init__(self, content, step):
            self.content, self.step = content, step

        def readable(self):
            return True

        def readinto(self, buffer):
            chunk, self.content = self.content[: self.step], self.content[self.step :]
            buffer[: len(chunk)] = chunk
            return len(chunk)

    monkeypatch.setattr(files, "MOST_BYTES", 5)
    content = b"ab\n\nabcdefghij\nabcde\nabcd\nx"
    for step in range(1, 30):
        found = list(files.read_lines(Stream(content, step), 100))
        assert [line for line, _ in found] == [b"ab\n", b"\n", None, None, b"abcd\n", b"x"], step
        assert [end for _, end in found] == [103, 104, 115, 121, 126, 127], step
        too_long = list(files.read_lines(Stream(b"abcdefgh", step)))
        assert too_long == [(None, 8)], step


def test_a_byte_order_mark_before_a_quoted_name_is_no_part_of_it_and_excel_s_separator_is_one(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf"dialogue";"speaker";"text"\n"a";"system";"yes, no"\n')
    [found] = dialogues_in(plan_of(tmp_path / "a.csv", row="turn"))
    assert found.id == "a"


USER, SYSTEM = {"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}


def read_lines(folder, *rows, **columns):
    return read_all(plan_of(write_lines(folder / "a.jsonl", rows), **columns))


GOOD = {"id": "good", "turns": [USER, SYSTEM]}


@pytest.mark.parametrize(
    ("row", "code", "field", "reason"),
    [
        ("{not json", "invalid_request", None, "the line is not JSON: Expecting property name"),
        (b'{"turns": "\xff"}', "invalid_request", None, "the line is not JSON: it is not UTF-8"),
        ("[1]", "invalid_request", None, "the line is not a JSON object"),
        ('{"turns": [NaN]}', "invalid_request", None, "the line is not JSON: NaN is not valid JSON"),
        ('{"turns": [1e999]}', "invalid_request", None, "a number is larger than a number can be"),
        ("[" * 100_000, "invalid_request", None, "the line is not JSON: maximum recursion depth"),
        ({"id": "x"}, "invalid_request", "turns", "the row has no field 'turns'"),
        ({"turns": 5}, "invalid_request", "turns", "must be a list"),
        ({"turns": "no json"}, "invalid_request", "turns", "the text is not a JSON list"),
        ({"turns": ["hi"]}, "invalid_request", "turns.0", "input should be"),
        ({"turns": [SYSTEM, {"text": "x"}]}, "invalid_request", "turns.1.speaker", "field required"),
        ({"turns": [SYSTEM, {"speaker": ["user"], "text": ""}]}, "invalid_request", "turns.1.speaker", "input should"),
        ({"turns": []}, "invalid_request", "turns", "there is no turn that can be scored"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "invalid_request", "messages.0.role", "must be one of"),
        ({"messages": [{"role": "user"}]}, "invalid_request", "messages.0.content", "field required"),
    ],
)  # fmt: skip
def test_a_row_of_which_nothing_can_be_scored_is_set_aside_whole(row, code, field, reason, tmp_path):
    before, found, after = read_lines(tmp_path, GOOD, row, GOOD)
    assert isinstance(before, InputDialogue)
    assert isinstance(after, InputDialogue)
    assert (found.row, found.turn, found.code, found.field) == (2, None, code, field)
    assert reason in found.reason


WRONG_TURNS = [
    ({"speaker": "system", "text": " \n"}, "invalid_request", "the system said nothing"),
    ({"speaker": "user", "text": None}, "invalid_request", "input should be a valid string"),
    ({"speaker": "user", "text": 5}, "invalid_request", "input should be a valid string"),
    ({"speaker": "user"}, "invalid_request", "field required"),
    ({"speaker": "user", "text": "a\x00"}, "invalid_request", "must not contain a NUL character"),
    ({"speaker": "user", "text": "\ud800"}, "invalid_request", "must not contain a lone surrogate"),
    ({"speaker": "user", "text": "x" * 8001}, "too_large", "8001 characters; at most 8000 are allowed"),
]


@pytest.mark.parametrize(("turn", "code", "reason"), WRONG_TURNS)
def test_a_turn_that_cannot_be_read_is_left_out_and_the_others_are_scored(turn, code, reason, tmp_path):
    left_out, dialogue = read_lines(tmp_path, {"id": "d", "turns": [USER, turn, SYSTEM]})
    assert (left_out.dialogue, left_out.row, left_out.turn) == ("d", 1, 1)
    assert (left_out.code, left_out.field, left_out.reason) == (code, "turns.1.text", reason)
    assert [turn.text for turn in dialogue.turns] == ["hi", "hello"]
    assert (dialogue.places, dialogue.turns_given) == ([0, 2], 3)


def test_the_largest_legal_dialogue_is_read_whole(tmp_path):
    turns = [USER | {"text": "\U0001f600" * 8000}, SYSTEM | {"text": "é" * 8000}] * 512
    [found] = read_lines(tmp_path, {"turns": turns})
    assert (len(found.turns), found.chars) == (1024, 1024 * 8000)


def test_nothing_set_aside_repeats_what_was_said(tmp_path):
    secret = "swordfish"
    rows = [
        f'{{"turns": "{secret}', {"turns": secret}, {"turns": [{"speaker": secret, "text": "x"}]},
        {"turns": [{"speaker": "user", "text": secret + "\x00"}, SYSTEM]},
        {"messages": [{"role": secret, "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": secret}]}]}, f"{secret}: 1e999",
    ]  # fmt: skip
    told = [each for each in read_lines(tmp_path, *rows) if isinstance(each, SetAside)]
    assert len(told) == len(rows)
    assert secret not in repr(told)


def test_of_rows_that_are_turns_each_fault_has_its_row(tmp_path):
    lines = ["a,1,user,hi", "a,2,system,", "a,3,system,yes", "b,1,user", "b,2,system,yes", ",1,user,hi"]
    lines += ["c,1,robot,hi", "c,2,system,yes", "d,1,system,fine"]
    (tmp_path / "a.csv").write_text("\n".join(["dialogue,n,speaker,text", *lines, ""]))
    found = read_all(plan_of(tmp_path / "a.csv", row="turn"))
    told = [(each.row, each.dialogue, each.turn, each.field) for each in found if isinstance(each, SetAside)]
    assert told == [
        (2, "a", 1, "text"), (4, "b", None, None), (6, None, None, "dialogue"), (7, "c", None, "speaker"),
    ]  # fmt: skip
    assert [each.id for each in found if isinstance(each, InputDialogue)] == ["a", "d"]
    assert [each.row for each in found if isinstance(each, SetAside) and "3 cells, the header 4" in each.reason] == [4]


@pytest.mark.parametrize("torn", ["", "{torn", '{"speaker": "user", "text": "?"}'])
def test_a_row_that_names_no_dialogue_does_not_part_the_one_it_lies_in(torn, tmp_path):
    rows = ({"dialogue": "a", **USER}, torn, {"dialogue": "a", **SYSTEM}, {"dialogue": "b", **SYSTEM})
    found = read_all(plan_of(write_lines(tmp_path / "a.jsonl", rows), row="turn", block_dialogues=1))
    dialogues = {each.id: list(each.rows) for each in found if isinstance(each, InputDialogue)}
    assert dialogues == {"a": [1, 3], "b": [4]}
    assert [each.row for each in found if isinstance(each, SetAside)] == ([2] if torn else [])


def test_no_block_holds_rows_without_names_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "MOST_NAMELESS", 3)
    rows = [{"dialogue": name, **USER} for name in ("a", *[None] * 20)]
    made = plan_of(write_lines(tmp_path / "a.jsonl", rows), row="turn", block_dialogues=4)
    assert max(block.rows for block in made.blocks) <= 4 + 3


def test_times_finer_than_pythons_are_cut_and_one_out_of_range_costs_its_row_alone(tmp_path):
    at = pa.array([1, 10**15, 0], pa.int64())
    said = pa.array([[USER | {"at": 1}, SYSTEM]] * 3, _TURNS_AT)
    kind = pa.list_(pa.struct([*((name, pa.string()) for name in USER), ("at", pa.timestamp("ns"))]))
    table = pa.table({"turns": said.cast(kind), "day": at.cast(pa.timestamp("s"))})
    parquet.write_table(table, tmp_path / "a.parquet")
    first, told, third = read_all(plan_of(tmp_path / "a.parquet", day="day"))
    assert (told.row, told.reason) == (2, "column 'day' holds a time that is out of range")
    assert all(isinstance(each, InputDialogue) and each.day == "1970-01-01" for each in (first, third))


_TURNS_AT = pa.list_(pa.struct([*((name, pa.string()) for name in USER), ("at", pa.int64())]))


def test_a_cell_of_parquet_that_is_not_utf_8_costs_its_row_alone(tmp_path):
    texts = pa.array([b"hi", b"\xff"], pa.binary()).view(pa.string())
    table = pa.table({"turns": [[SYSTEM]] * 2, "id": texts})
    parquet.write_table(table, tmp_path / "a.parquet")
    _, told = read_all(plan_of(tmp_path / "a.parquet"))
    assert (told.row, told.reason) == (2, "column 'id' holds what is not UTF-8")
