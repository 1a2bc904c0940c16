"""Original files in our form: against what the shared sets hold of the same records, and on files of our own text."""

import gzip
import json

import pytest
from support.files import find_data
from turnscore_assessment.commands.data import app
from turnscore_assessment.data.dialogues import read_rated_turns
from typer.testing import CliRunner

# Of a few records the place in the release is not known; ids of people are hashed anew.
UNLIKE = {"order", "worker", "hit"}

SAMPLES = [
    ("convai2017", "convai2017.data_train_1501534800.json", "convai2017.jsonl.gz", "id"),
    ("convai2017", "convai2017.data_test_1501534800.json", "convai2017.jsonl.gz", "id"),
    ("dstc9", "dstc9.chatbot1.json", "dstc9_interactive.jsonl.gz", "id"),
    ("dbdc3", "dbdc3.ticktock_00003.log.json", "dbdc3_dev.jsonl.gz", "id"),
    ("dialogue-eval", "dialogue_eval.pass_free_run1.json", "human_assessment/free_run1_pass.jsonl.gz", "turns"),
    ("schema-guided", "sgd.dialogues_001.json", "dialogue_text.jsonl.gz", "turns"),
    ("topical-chat", "topical_chat.valid_freq.json", "dialogue_text.jsonl.gz", "turns"),
    ("synthetic-persona-chat", "synthetic_persona_chat.valid.csv", "dialogue_text.jsonl.gz", "turns"),
    ("dailydialog-adversarial", "dailydialogpp.dev.json", "adversarial_responses.jsonl.gz", "context"),
    ("grade", "grade.human_judgement.json", "turn_ratings.jsonl.gz", "response"),
    ("multiref-ratings", "multiref.mturk_rating_processed_output.csv", "multiref/ratings.jsonl.gz", "response"),
    ("multiref-test", "multiref.multireftest.json", "multiref/test.jsonl.gz", "turns"),
]


def run(*words):
    result = CliRunner().invoke(app, ["convert", *map(str, words)])
    return result.exit_code, result.output


def read_rows(path):
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize(("name", "original", "shared", "key"), SAMPLES)
def test_published_records_become_the_rows_that_our_sets_have(name, original, shared, key, tmp_path):
    source, known = find_data(f"originals/{original}", shared)
    assert run(name, source, tmp_path / "rows.jsonl")[0] == 0
    ours = {json.dumps(row[key]): row for row in read_rows(known)}
    made = read_rows(tmp_path / "rows.jsonl")
    assert made
    for row in made:
        same = ours[json.dumps(row[key])]
        assert {name: row[name] for name in row.keys() - UNLIKE} == {name: same[name] for name in same.keys() - UNLIKE}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_folder_is_read_in_the_order_that_the_split_hangs_on(tmp_path):
    def dialogue(number):
        users = [{"id": "Ann", "userType": "Human"}, {"id": "Bot", "userType": "Bot"}]
        rated = [{"userId": each, "engagement": 3, "quality": 2, "breadth": 1} for each in ("Ann", "Bot")]
        return {"dialogId": number, "users": users, "thread": [], "evaluation": rated, "context": "about"}

    write(tmp_path / "a" / "data_test_1.json", [dialogue(3)])
    write(tmp_path / "b" / "data_train_1.json", [dialogue(1), dialogue(2)])
    packed = tmp_path / "rows.jsonl.gz"
    assert run("convai2017", tmp_path, packed)[0] == 0
    assert [(row["id"], row["order"]) for row in read_rows(packed)] == [("1", 0), ("2", 1), ("3", 2)]
    before = packed.read_bytes()
    run("convai2017", tmp_path, packed)
    assert packed.read_bytes() == before, "the same rows are the same bytes"


def test_raters_of_one_dialogue_are_one_row_and_a_line_may_go_on(tmp_path):
    said = "User: hi\nSystem: well\nthere"
    rated = [(said, 1), (said, 3), ("User: x", 2)]
    records = [{"context": context, "likeable": rating} for context, rating in rated]
    source = write(tmp_path / "chatbot7.json", records)
    assert run("dstc9", source, tmp_path / "rows.jsonl")[0] == 0
    first, second = read_rows(tmp_path / "rows.jsonl")
    assert (first["ratings"], first["turns"][1]["text"]) == ([{"likeable": 1}, {"likeable": 3}], "well there")
    assert (second["id"], second["system"]) == ("dstc9-7-1", 7)


def test_both_sets_of_zhao_s_turns_are_read_and_other_files_of_the_folder_are_not(tmp_path):
    rows = {"persona": '"hi\nhow are you ?","fine , thanks .",4.75', "dailydialog": "hello,ok .,1", "other": "a,b,1"}
    for name, row in rows.items():
        write(tmp_path / "turn" / f"{name}-zhao.csv", f"arabic_ctx,english_ctx,english_res,ratings\nx,{row}\n")
    assert run("zhao", tmp_path, tmp_path / "rows.jsonl")[0] == 0
    first, second = read_rows(tmp_path / "rows.jsonl")
    assert first == {
        "set": "persona-zhao", "question": "overall", "scale": [1, 5],
        "context": ["hi", "how are you ?"], "response": "fine , thanks .", "rating": 4.75,
    }  # fmt: skip
    assert (second["set"], second["rating"]) == ("dailydialog-zhao", 1.0)
    assert [turn.set_name for turn in read_rated_turns(tmp_path / "rows.jsonl")] == ["persona-zhao", "dailydialog-zhao"]
    assert run("zhao", tmp_path, tmp_path / "rows.jsonl", "--whole")[0] == 1, "the whole set has 1,800"


def test_ids_of_people_are_hashed(tmp_path):
    chat = {"model": "A", "dialogue": [{"round": 1, "user": "hi", "bot": "ho"}], "raw scores": {"fun": 1}}
    source = write(tmp_path / "pass.json", [{"WorkerId": "A1SECRET", "HITId": "HITSECRET", "data": [chat]}])
    assert run("dialogue-eval", source, tmp_path / "rows.jsonl")[0] == 0
    assert "SECRET" not in (tmp_path / "rows.jsonl").read_text()


OTHER_FORMS = [
    ("convai2017", "a.json", [{"users": 1}], "line 1: `users` is int, expected list"),
    ("dstc9", "bot.json", [{"context": "User: hi"}], "is not named after its system"),
    ("grade", "human_judgement.json", '{"Context": "a"}\n\n{"Context"\n', "line 3: is not JSON"),
    ("zhao", "persona-zhao.csv", "spanish_ctx,spanish_res,ratings\na,b,1\n", "line 2: `english_ctx` is NoneType"),
    ("zhao", "persona-zhao.csv", "english_ctx,english_res,ratings\na,b,nan\n", "`ratings` is nan, expected 1 to 5"),
    ("synthetic-persona-chat", "valid.csv", "a,b\n1,2\n", "line 2: `Best Generated Conversation`"),
    ("multiref-ratings", "r.csv", "human_average_rating,context\nx,y\n", "expected a number"),
]


@pytest.mark.parametrize(("name", "file", "content", "said"), OTHER_FORMS)
def test_what_is_not_in_the_published_form_is_refused_by_its_place(name, file, content, said, tmp_path):
    code, output = run(name, write(tmp_path / file, content), tmp_path / "rows.jsonl")
    assert (code, said in output) == (1, True), output
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_line_per_object_may_hold_what_python_takes_for_the_end_of_a_line(tmp_path):
    line = json.dumps({"context": ["a\u2028b"], "positive_responses": ["c\x85d"]}, ensure_ascii=False)
    (tmp_path / "train.json").write_text(f"\ufeff{line}\n\n{line}\n", encoding="utf-8")
    code, output = run("dailydialog-several", tmp_path / "train.json", tmp_path / "rows.jsonl")
    assert (code, "2 rows" in output) == (0, True), output


def test_counts_are_compared_with_those_of_the_whole_set(tmp_path):
    source = write(tmp_path / "yi_1.log.json", {"dialogue-id": "yi_1", "turns": []})
    write(tmp_path / "CIC_1" / "5812.log.json", {"dialogue-id": "5812", "turns": []})
    code, output = run("dbdc3", tmp_path, tmp_path / "rows.jsonl")
    assert (code, "the whole set has 300 rows and 6,100 turns: this is a part of it" in output) == (0, True), output
    code, output = run("dbdc3", source, tmp_path / "rows.jsonl", "--whole")
    assert (code, "has 1 rows and 0 turns" in output) == (1, True), output


def test_no_source_is_overwritten_and_unknown_names_are_refused(tmp_path):
    source = write(tmp_path / "a.log.json", {"dialogue-id": "yi_1", "turns": []})
    assert run("dbdc3", source, source)[0] == 2
    assert run("dbdc4", source, tmp_path / "rows.jsonl")[0] == 2
    assert run("grade", tmp_path, tmp_path / "rows.jsonl")[0] == 1, "the folder has no such file"
