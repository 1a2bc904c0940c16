"""The report of an output: its counts, its groups, a broken one; and the page of columns and options."""

import re
from pathlib import Path
from statistics import fmean

import pytest
import typer
from support.corpora import WordEngine, content_of, dialogue_rows, plan_of, turns_of, write_lines
from turnscore_assessment.drift.report import measure_stability
from turnscore_corpus.command import app
from turnscore_corpus.engines.work import process_block
from turnscore_corpus.outputs import folder as columns
from turnscore_corpus.outputs.folder import OutputFolder, describe_job
from turnscore_corpus.outputs.stores import BadOutputError
from turnscore_corpus.report import WHOLE, read_corpus
from typer.testing import CliRunner

ROWS = [
    *dialogue_rows(23),
    {"id": "long", "turns": turns_of("hi", "word " * 90, "so", "word " * 95), "bot": "b", "at": "2026-11-02"},
    {"id": "short", "turns": turns_of("hi", "no"), "bot": "<b>&", "at": "2026-11-02"},
    "no json",
    {"turns": [], "bot": "a", "at": "2026-11-02"},
]


@pytest.fixture
def output(tmp_path):
    return scored(tmp_path, {"system": "bot", "day": "at"})


def scored(folder, columns, blocks=None):
    made, engine = plan_of(write_lines(folder / "a.jsonl", ROWS), 5, **columns), WordEngine(("words", "more"))
    sink = OutputFolder.begin(str(folder / "out"), describe_job(made, engine, {}, 5))
    for block in made.blocks[:blocks]:
        process_block(block, engine, sink)
    return folder / "out"


def rows_with(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_every_tally_counts_the_rows_of_the_tables(output):
    corpus, found = read_corpus(str(output)), content_of(output)
    assert (corpus.turns, corpus.dialogues, corpus.rows) == (len(found["turns"]), 25, 27)
    for scorer in ("words", "more"):
        groups = {WHOLE: {}, **{("system", name): {"system": name} for name in ("a", "b", "<b>&")}}
        groups |= {("day", each): {"day": each} for each in ("2026-11-01", "2026-11-02")}
        for key, wanted in groups.items():
            tally, rows = corpus.tallies[scorer][key], rows_with(found["turns"], **wanted)
            assert tally.counts.turns == len(rows)
            assert tally.counts.dialogues == len(rows_with(found["dialogues"], **wanted))
            assert tally.mean == pytest.approx(fmean(row[f"{scorer}_value"] for row in rows))
            assert tally.mean_percentile == pytest.approx(fmean(row[f"{scorer}_percentile"] for row in rows))
            assert tally.counts.low == sum(row[f"{scorer}_label"] == "low" for row in rows)
            tens = [sum(low < row[f"{scorer}_percentile"] <= low + 10 for row in rows) for low in range(0, 100, 10)]
            assert tally.counts.bins == tens


def test_a_folder_without_a_run_and_a_damaged_file_are_named(output, tmp_path):
    with pytest.raises(BadOutputError, match=r"has no job\.json: `turnscore corpus score` wrote nothing there"):
        read_corpus(str(tmp_path))
    path = output / "turns" / "part-0000001.parquet"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(BadOutputError, match=r"turns/part-0000001\.parquet is damaged"):
        read_corpus(str(output))


def test_the_command_prints_and_writes_the_same_and_the_page_escapes_names(output, tmp_path):
    done = CliRunner().invoke(
        app, ["report", str(output), "--html", str(tmp_path / "page.html")], env={"COLUMNS": "200"}
    )
    assert done.exit_code == 0
    text, page = done.stdout, (tmp_path / "page.html").read_text()
    index = f"{measure_stability(read_corpus(str(output)).tallies['words'][WHOLE].counts.bins):.4f}"
    captions = ("words: by system", "more: by day", "words: worst", "Set aside, by reason")
    for said in (*captions, "2026-11-02", index, "fewer than 100 dialogues"):
        assert said in text
        assert said in page
    assert "<b>&" in text
    assert "<b>&" not in page
    assert "<svg" in page
    assert "Scores of a corpus" in page
    assert "Not finished" not in text
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 1


PAGE = (Path(__file__).parents[3] / "docs" / "corpora.md").read_text()


TABLES = {
    "turns": ((columns.TURN, ""), (columns.TURN_SCORES, "<scorer>_")),
    "dialogues": ((columns.DIALOGUE, ""), (columns.DIALOGUE_SCORES, "<scorer>_")),
    "set_aside": ((columns.SET_ASIDE, ""),),
}


def test_every_column_is_documented_and_no_other():
    tables_of = {}
    for table, parts in TABLES.items():
        for listed, prefix in parts:
            for each in listed:
                row = f"| `{prefix}{each.name}` | {each.type} | {each.meaning} |"
                tables_of.setdefault(row, []).append(f"`{table}`")
    documented = {
        row: tables.split(", ")
        for tables, rows in re.findall(r"^In (`.+`):\n\n\| column .*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
        for row in rows.splitlines()
    }
    assert documented == tables_of
    assert PAGE.count("| column |") == len({tuple(tables) for tables in tables_of.values()})


def test_every_option_is_documented_and_no_other():
    commands = typer.main.get_command(app).commands
    words = {word for command in commands.values() for each in command.params for word in each.opts}
    options = {word for word in words if word.startswith("--")} - {"--help"}
    listed = {word for line in PAGE.splitlines() if line.startswith("| `--") for word in re.findall(r"--[a-z-]+", line)}
    assert listed == options
