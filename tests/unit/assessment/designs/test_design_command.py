"""`turnscore assess design`: from items to filled sheets to scores, over both forms; and what is refused."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.files import write_lines
from turnscore_assessment.commands.main import app
from turnscore_assessment.designs.form import DesignKind
from typer.testing import CliRunner

RUNNER = CliRunner()
GOOD = {"A": 1, "B": 2, "C": 3}  # How good each made-up system is; every rater here sees it at once.


def write_items(path: Path, dialogues: int = 8) -> Path:
    rows: list[dict[str, Any]] = []
    for dialogue in range(dialogues):
        shared = {"dialogue": f"d{dialogue}", "context": [{"speaker": "user", "text": f"hello {dialogue}"}]}
        rows += [{**shared, "system": system, "response": f"{system.lower()}, {dialogue}"} for system in GOOD]
        rows.append({**shared, "system": "human", "response": "ideal", "reference": True, "standard": 50})
    return write_lines(path, *rows)


def make(folder: Path, kind: str, *options: str, dialogues: int = 8) -> Path:
    items = write_items(folder / "items.jsonl", dialogues)
    if not DesignKind(kind).is_magnitude:
        lines = [json.loads(line) for line in items.read_text().splitlines()]
        write_lines(items, *[line for line in lines if not line.get("reference")])
    criterion = ["--criterion", "fun", "--raters", "6", "--output", str(folder / "study")]
    done = RUNNER.invoke(app, ["design", "make", str(items), "--design", kind, *criterion, *options])
    assert done.exit_code == 0, done.output
    return folder / "study"


def answer(kind: str, options: dict[str, str], page: int) -> dict[str, Any]:
    """`options` are systems by item. Raters err on every seventh page."""
    liked = sorted(options, key=lambda item: GOOD[options[item]] * (-1 if page % 7 == 0 else 1), reverse=True)
    if kind == "best-worst":
        return {"best": liked[0], "worst": liked[-1]}
    if kind == "pairwise":
        return {"better": "tie" if page % 5 == 0 else liked[0]}
    if kind == "ranking":
        return {item: rank for rank, item in enumerate(liked, start=1)}
    return {item: 1 + 2 * place for place, item in enumerate(reversed(liked))}


def say_cell(kind: str, item: str, given: dict[str, Any]) -> str:
    if kind == "best-worst":
        return {given["best"]: "best", given["worst"]: "Worst"}.get(item, "")
    if kind == "pairwise":
        return "tie" if given["better"] == "tie" else "better" if given["better"] == item else ""
    return str(given[item])


def fill(study: Path, kind: str, form: str, change: Callable[[str], str] = str) -> list[str]:
    """The paths of the sheets, filled."""
    systems = {name: item["system"] for name, item in json.loads((study / "key.json").read_text())["items"].items()}
    paths = sorted((study / "sheets").glob(f"*.{form}"))
    for path in paths:
        if form == "jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            for line in lines:
                options = {option["item"]: systems[option["item"]] for option in line["options"]}
                line["answers"]["fun"] = answer(kind, options, line["question"])
            write_lines(path, *lines)
        else:
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            for row in rows:
                page = [each["item"] for each in rows if each["question"] == row["question"]]
                given = answer(kind, {item: systems[item] for item in page}, int(row["question"]))
                row["answer"] = change(say_cell(kind, row["item"], given))
            content = io.StringIO()
            writer = csv.DictWriter(content, rows[0], delimiter=";" if change is not str else ",")
            writer.writeheader()
            writer.writerows(rows)
            path.write_text(content.getvalue())
    return [str(path) for path in paths]


def analyse(study: Path, sheets: list[str], *options: str) -> Any:
    output = study / "found.json"
    done = RUNNER.invoke(
        app, ["design", "analyse", str(study / "key.json"), *sheets, "--output", str(output), *options]
    )
    assert done.exit_code == 0, done.output
    return json.loads(output.read_text())["criteria"][0], done.output


@pytest.mark.parametrize("kind", DesignKind)
def test_both_forms_of_sheets_say_the_same_and_find_the_order(kind: DesignKind, tmp_path: Path) -> None:
    study = make(tmp_path, kind)
    found, output = analyse(study, fill(study, kind, "jsonl"))
    again, _ = analyse(study, fill(study, kind, "csv"))
    assert found == again
    for scoring in found["scorings"]:
        assert [each["system"] for each in scoring["systems"]] == ["C", "B", "A"]
        assert scoring["transforms"]
        for step in scoring["transforms"]:
            assert step in output
    assert found["unanswered"] == 0
    assert f"{found['answered']} of {found['answered']} questions answered by 6 raters on 8 dialogues" in output
    assert "C > A" in output


def test_a_spreadsheet_with_semicolons_and_decimal_commas_is_read(tmp_path: Path) -> None:
    study = make(tmp_path, "continuous")
    found, _ = analyse(study, fill(study, "continuous", "csv", lambda cell: f"{cell},5"), "--transform", "raw")
    means = {each["system"]: each["score"]["value"] for each in found["scorings"][0]["systems"]}
    assert means["C"] == pytest.approx(5.5 - 4 / 8, abs=1.0)
    assert found["scorings"][0]["transforms"] == ["none: raw answers"]


def test_unanswered_questions_are_counted(tmp_path: Path) -> None:
    study = make(tmp_path, "best-worst", "--tuple-size", "3")
    sheets = fill(study, "best-worst", "jsonl")
    found, output = analyse(study, sheets[:4])
    assert (found["answered"], found["unanswered"]) == (32, 16)
    assert "32 of 48 questions answered by 4 raters" in output


def refuse(study: Path, *sheets: str | Path) -> str:
    """What `analyse` says of sheets that it refuses."""
    done = RUNNER.invoke(app, ["design", "analyse", str(study / "key.json"), *map(str, sheets)])
    assert done.exit_code == 1, done.output
    return done.stderr


def break_line(study: Path, kind: str, change: Callable[[dict[str, Any]], object]) -> str:
    """What `analyse` says of a first sheet whose second line is changed."""
    path = Path(fill(study, kind, "jsonl")[0])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines[1])
    return refuse(study, write_lines(path, *lines))


def put(place: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Changes an answer: of the first option, or of a field."""

    def change(line: dict[str, Any]) -> None:
        answers = line["answers"]["fun"]
        answers[next(iter(answers)) if place == "first" else place] = value

    return change


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("likert", put("first", 7), r"7 is not within 1 and 6"),
        ("likert", put("first", True), r"must be a number"),
        ("likert", put("i000000", 3), r"answers.fun.i000000: is not an option of this question"),
        ("ranking", put("first", 9), r"9 is not within 1 and 3"),
        ("best-worst", put("best", "unknown"), r"answers.fun.best: must name an option of this question"),
        ("pairwise", put("better", "both"), r"answers.fun.better: must name an option of this question, or `tie`"),
        ("likert", lambda line: line.update(rater="r9"), r"question: 'r9' was not asked a number"),
        ("likert", lambda line: line["answers"].update(wit={}), r"answers: 'wit' is not one of fun"),
        ("likert", lambda line: line.update(study="other"), r"study: is 'other', but the key is of 'study'"),
    ],
)
def test_what_does_not_fit_the_key_is_named(
    kind: str, change: Callable[[dict[str, Any]], object], reason: str, tmp_path: Path
) -> None:
    said = break_line(make(tmp_path, kind), kind, change)
    assert "r1.jsonl, line 2: " in said
    assert reason in said


def test_a_question_answered_in_two_files_is_named(tmp_path: Path) -> None:
    study = make(tmp_path, "likert")
    sheets = [fill(study, "likert", form)[0] for form in ("jsonl", "csv")]
    assert "r1.csv, line 2: answers.fun: r1's question 1 was already answered" in refuse(study, *sheets)


def test_a_rank_given_twice_is_named(tmp_path: Path) -> None:
    def repeat(line: dict[str, Any]) -> None:
        line["answers"]["fun"] = dict.fromkeys(line["answers"]["fun"], 1)

    assert "must give each rank from 1 to 3 once" in break_line(make(tmp_path, "ranking"), "ranking", repeat)


@pytest.mark.parametrize(
    ("kind", "cell", "reason"),
    [
        ("continuous", "nan", "nan is not within 0 and 100"),
        ("best-worst", "best", "says `best` more than once"),
        ("pairwise", "better", "says `better` or `tie` more than once"),
    ],
)
def test_a_wrong_cell_is_named(kind: str, cell: str, reason: str, tmp_path: Path) -> None:
    study = make(tmp_path, kind)
    said = refuse(study, fill(study, kind, "csv", lambda _: cell)[0])
    assert "r1.csv, line " in said
    assert reason in said


def test_a_table_without_the_columns_is_refused(tmp_path: Path) -> None:
    study, sheet = make(tmp_path, "likert"), tmp_path / "sheet.csv"
    for content, reason in (
        ("item\nr1,1,fun,x", "line 1: has no column `answer`"),
        ("item,answer\nr1,first,fun,x,3", "line 2: question: must be a whole number"),
        (f"item,answer\nr1,{'9' * 5000},fun,x,3", "line 2: question: must be a whole number"),
    ):
        sheet.write_text(f"rater,question,criterion,{content}\n")
        assert f"sheet.csv, {reason}" in refuse(study, sheet)


def test_a_broken_key_is_named_by_its_field(tmp_path: Path) -> None:
    study = make(tmp_path, "likert")
    key = json.loads((study / "key.json").read_text())
    key["questions"][0]["options"] = ["unknown"]
    (study / "key.json").write_text(json.dumps(key))
    said = refuse(study, study / "sheets" / "r1.jsonl")
    assert "key.json: questions: r1's number 1 has an option without an item" in said


def test_an_empty_study_says_so(tmp_path: Path) -> None:
    study = make(tmp_path, "likert")
    assert "fun: no question is answered" in refuse(study, study / "sheets" / "r1.jsonl")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"dialogue": "d", "system": "A"}, "line 1: must have either `response` or `turns`"),
        (
            {"dialogue": "d", "system": "A", "response": "x", "standard": 3},
            "line 1: standard: only a reference may have one",
        ),
        ({"dialogue": "d", "system": "A", "response": "x", "name": 1}, "line 1: name: extra inputs"),
    ],
)
def test_a_wrong_item_is_named(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    items = write_lines(tmp_path / "items.jsonl", row)
    options = ["--design", "likert", "--criterion", "fun", "--raters", "1", "--output", str(tmp_path / "out")]
    done = RUNNER.invoke(app, ["design", "make", str(items), *options])
    assert done.exit_code == 1
    assert reason in done.stderr
