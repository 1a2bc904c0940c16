"""What of a row is scored, what is left out, and what is set aside, with its place and its reason."""

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.corpora import plan_of, read_all, write_lines
from turnscore_corpus.inputs import plan
from turnscore_corpus.inputs.dialogues import InputDialogue, SetAside

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
        ({"turns": ["hi"]}, "invalid_request", "turns.0", "must be an object"),
        ({"turns": [SYSTEM, {"text": "x"}]}, "invalid_request", "turns.1.speaker", "input should be 'user'"),
        ({"turns": [SYSTEM, {"speaker": ["user"], "text": ""}]}, "invalid_request", "turns.1.speaker", "input should"),
        ({"turns": [USER] * 1025}, "too_large", "turns", "1025 turns; at most 1024 are allowed in one dialogue"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "invalid_request", "messages.0.role", "must be one of"),
        ({"messages": [{"role": "user"}]}, "invalid_request", "messages.0.content", "field required"),
        ({"messages": [{"role": "user", "content": "x"}] * 1025}, "too_large", "messages", "1025 turns; at most 1024"),
    ],
)  # fmt: skip
def test_a_row_of_which_nothing_can_be_scored_is_set_aside_whole(row, code, field, reason, tmp_path):
    before, found, after = read_lines(tmp_path, GOOD, row, GOOD)
    assert isinstance(before, InputDialogue)
    assert isinstance(after, InputDialogue)
    assert isinstance(found, SetAside)
    assert (found.row, found.turn, found.code, found.field) == (2, None, code, field)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("turn", "code", "reason"),
    [
        ({"speaker": "system", "text": " \n"}, "invalid_request", "the system said nothing"),
        ({"speaker": "user", "text": None}, "invalid_request", "input should be a valid string"),
        ({"speaker": "user", "text": 5}, "invalid_request", "input should be a valid string"),
        ({"speaker": "user"}, "invalid_request", "input should be a valid string"),
        ({"speaker": "user", "text": "a\x00"}, "invalid_request", "must not contain a NUL character"),
        ({"speaker": "user", "text": "\ud800"}, "invalid_request", "must not contain a lone surrogate"),
        ({"speaker": "user", "text": "x" * 8001}, "too_large", "8001 characters; at most 8000 are allowed"),
    ],
)
def test_a_turn_that_cannot_be_read_is_left_out_and_the_others_are_scored(turn, code, reason, tmp_path):
    left_out, dialogue = read_lines(tmp_path, {"id": "d", "turns": [USER, turn, SYSTEM]})
    assert isinstance(left_out, SetAside)
    assert (left_out.dialogue, left_out.row, left_out.turn) == ("d", 1, 1)
    assert (left_out.code, left_out.field, left_out.reason) == (code, "turns.1.text", reason)
    assert isinstance(dialogue, InputDialogue)
    assert [turn.text for turn in dialogue.turns] == ["hi", "hello"]
    assert (dialogue.places, dialogue.turns_given) == ([0, 2], 3)


def test_the_largest_legal_dialogue_is_read_whole(tmp_path):
    turns = [USER | {"text": "\U0001f600" * 8000}, SYSTEM | {"text": "é" * 8000}] * 512
    [found] = read_lines(tmp_path, {"turns": turns})
    assert isinstance(found, InputDialogue)
    assert (len(found.turns), found.chars) == (1024, 1024 * 8000)


def test_nothing_set_aside_repeats_what_was_said(tmp_path):
    secret = "swordfish"
    rows = [
        f'{{"turns": "{secret}',
        {"turns": secret},
        {"turns": [{"speaker": secret, "text": "x"}]},
        {"turns": [{"speaker": "user", "text": secret + "\x00"}, SYSTEM]},
        {"messages": [{"role": secret, "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": secret}]}]},
        f"{secret}: 1e999",
    ]
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
    assert isinstance(told, SetAside)
    assert (told.row, told.reason) == (2, "column 'day' holds a time that is out of range")
    assert all(isinstance(each, InputDialogue) and each.day == "1970-01-01" for each in (first, third))


_TURNS_AT = pa.list_(pa.struct([*((name, pa.string()) for name in USER), ("at", pa.int64())]))


def test_a_cell_of_parquet_that_is_not_utf_8_costs_its_row_alone(tmp_path):
    texts = pa.array([b"hi", b"\xff"], pa.binary()).view(pa.string())
    table = pa.table({"turns": [[SYSTEM]] * 2, "id": texts})
    parquet.write_table(table, tmp_path / "a.parquet")
    _, told = read_all(plan_of(tmp_path / "a.parquet"))
    assert isinstance(told, SetAside)
    assert (told.row, told.reason) == (2, "column 'id' holds what is not UTF-8")
