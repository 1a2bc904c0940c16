"""`turnscore assess design`: from items to filled sheets to scores, and what is refused."""

import csv
import json
from pathlib import Path

import pytest
from support.files import invoke, write_lines
from turnscore_assessment.commands.main import app
from turnscore_assessment.designs.form import DesignKind

GOOD = {"A": 1, "B": 2, "C": 3}  # How good each made-up system is; every rater here sees it at once.


def write_items(path, dialogues=8):
    rows = []
    for dialogue in range(dialogues):
        shared = {"dialogue": f"d{dialogue}", "context": [{"speaker": "user", "text": f"hello {dialogue}"}]}
        rows += [{**shared, "system": system, "response": f"{system.lower()}, {dialogue}"} for system in GOOD]
        rows.append({**shared, "system": "human", "response": "ideal", "reference": True, "standard": 50})
    return write_lines(path, *rows)


def make(folder, kind, *options, dialogues=8):
    items = write_items(folder / "items.jsonl", dialogues)
    if not DesignKind(kind).is_magnitude:
        lines = [json.loads(line) for line in items.read_text().splitlines()]
        write_lines(items, *[line for line in lines if not line.get("reference")])
    criterion = ["--criterion", "fun", "--raters", "6", "--output", str(folder / "study")]
    invoke(app, ["design", "make", str(items), "--design", kind, *criterion, *options])
    return folder / "study"


def answer(kind, options, page):
    """What raters write of each option; `options` are systems by item. They err on every seventh page."""
    liked = sorted(options, key=lambda item: GOOD[options[item]] * (-1 if page % 7 == 0 else 1), reverse=True)
    if kind == "best-worst":
        return {liked[0]: "best", liked[-1]: "Worst"}
    if kind == "pairwise":
        return dict.fromkeys(options, "tie") if page % 5 == 0 else {liked[0]: "better"}
    if kind == "ranking":
        return {item: rank for rank, item in enumerate(liked, start=1)}
    return {item: 1 + 2 * place for place, item in enumerate(reversed(liked))}


def fill(study, kind, change=str):
    """The paths of the sheets, filled."""
    systems = {name: item["system"] for name, item in json.loads((study / "key.json").read_text())["items"].items()}
    paths = sorted((study / "sheets").iterdir())
    for path in paths:
        rows = read_sheet(path)
        for row in rows:
            page = [each["item"] for each in rows if each["question"] == row["question"]]
            given = answer(kind, {item: systems[item] for item in page}, int(row["question"]))
            row["answer"] = change(str(given.get(row["item"], "")))
        write_sheet(path, rows, ";" if change is not str else ",")
    return [str(path) for path in paths]


def read_sheet(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_sheet(path, rows, separator=","):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)


def analyse(study, sheets, *options):
    output = study / "found.json"
    done = invoke(app, ["design", "analyse", str(study / "key.json"), *sheets, "--output", str(output), *options])
    return json.loads(output.read_text())["criteria"][0], done.output


@pytest.mark.parametrize("kind", DesignKind)
def test_filled_sheets_find_the_order(kind, tmp_path):
    study = make(tmp_path, kind)
    found, output = analyse(study, fill(study, kind)[:5])
    for scoring in found["scorings"]:
        assert [each["system"] for each in scoring["systems"]] == ["C", "B", "A"]
        assert scoring["transforms"]
        for step in scoring["transforms"]:
            assert step in output
    asked = found["answered"] + found["unanswered"]
    assert 5 * asked == 6 * found["answered"]
    assert f"{found['answered']} of {asked} questions answered by 5 raters on 8 dialogues" in output
    assert "C > A" in output


def test_a_spreadsheet_with_semicolons_and_decimal_commas_is_read(tmp_path):
    study = make(tmp_path, "continuous")
    found, _ = analyse(study, fill(study, "continuous", lambda cell: f"{cell},5"), "--transform", "raw")
    means = {each["system"]: each["score"]["value"] for each in found["scorings"][0]["systems"]}
    assert means["C"] == pytest.approx(5.5 - 4 / 8, abs=1.0)
    assert found["scorings"][0]["transforms"] == ["none: raw answers"]


def refuse(study, *sheets):
    """What `analyse` says of sheets that it refuses."""
    done = invoke(app, ["design", "analyse", str(study / "key.json"), *map(str, sheets)], code=1)
    return done.stderr


MISFITS = [
    ("likert", "answer", "7", "r1's question 1, fun.ITEM: 7 is not within 1 and 6"),
    ("likert", "answer", "good", "ITEM: must be a number, not 'good'"),
    ("likert", "answer", "2.5", "ITEM: must be a whole number, not 2.5"),
    ("likert", "item", "i000000", "fun.i000000: is not an option of this question"),
    ("ranking", "answer", "9", "9 is not within 1 and 3"),
    ("pairwise", "answer", "both", "ITEM: must be `better` or `tie`, not 'both'"),
    ("likert", "rater", "r9", "question: 'r9' was not asked a number"),
    ("likert", "criterion", "wit", "criterion: 'wit' is not one of fun"),
    ("continuous", "answer", "nan", "nan is not within 0 and 100"),
]


@pytest.mark.parametrize(("kind", "column", "value", "reason"), MISFITS)
def test_what_does_not_fit_the_key_is_named(kind, column, value, reason, tmp_path):
    study = make(tmp_path, kind)
    path = Path(fill(study, kind)[0])
    rows = read_sheet(path)
    item = rows[0]["item"]
    rows[0][column] = value
    write_sheet(path, rows)
    said = refuse(study, path)
    assert "r1.csv, line 2: " in said
    assert reason.replace("ITEM", item) in said


WRONG_CELLS = [
    ("ranking", "1", "must give each rank from 1 to 3 once"),
    ("best-worst", "best", "says `best` more than once"),
    ("pairwise", "better", "says `better` or `tie` more than once"),
]


@pytest.mark.parametrize(("kind", "cell", "reason"), WRONG_CELLS)
def test_a_wrong_cell_is_named(kind, cell, reason, tmp_path):
    study = make(tmp_path, kind)
    said = refuse(study, fill(study, kind, lambda _: cell)[0])
    assert "r1.csv, line " in said
    assert reason in said


def test_sheets_and_keys_that_cannot_be_read_are_named(tmp_path):
    study, sheet = make(tmp_path, "likert"), tmp_path / "sheet.csv"
    for content, reason in (
        ("item\nr1,1,fun,x", "line 1: has no column `answer`"),
        ("item,answer\nr1,first,fun,x,3", "line 2: question: must be a whole number"),
        (f"item,answer\nr1,{'9' * 5000},fun,x,3", "line 2: question: must be a whole number"),
    ):
        sheet.write_text(f"rater,question,criterion,{content}\n")
        assert f"sheet.csv, {reason}" in refuse(study, sheet)
    unanswered = study / "sheets" / "r1.csv"
    assert "fun: no question is answered" in refuse(study, unanswered)
    filled = fill(study, "likert")[0]
    assert "r1.csv, line 2: fun: r1's question 1 was already answered" in refuse(study, filled, filled)
    key = json.loads((study / "key.json").read_text())
    key["questions"][0]["options"] = ["unknown"]
    (study / "key.json").write_text(json.dumps(key))
    assert "key.json: questions: r1's number 1 has an option without an item" in refuse(study, unanswered)


WRONG_ITEMS = [
    ({"dialogue": "d", "system": "A"}, "line 1: must have either `response` or `turns`"),
    ({"dialogue": "d", "system": "A", "response": "x", "standard": 3}, "standard: only a reference may have one"),
    ({"dialogue": "d", "system": "A", "response": "x", "name": 1}, "line 1: name: extra inputs"),
]


@pytest.mark.parametrize(("row", "reason"), WRONG_ITEMS)
def test_a_wrong_item_is_named(row, reason, tmp_path):
    items = write_lines(tmp_path / "items.jsonl", row)
    options = ["--design", "likert", "--criterion", "fun", "--raters", "1", "--output", str(tmp_path / "out")]
    done = invoke(app, ["design", "make", str(items), *options], code=1)
    assert reason in done.stderr
