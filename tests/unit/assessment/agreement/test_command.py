"""The command from file to figures, with made-up dialogues and a scorer that knows their qualities."""

import json

import numpy as np
import pytest
from scipy import stats
from support.exporter_data import OracleScorer, build_judged, write_judged
from support.fakes import FakeScorer, engine_of, loaded_fake
from support.files import invoke
from turnscore_assessment import command_line
from turnscore_assessment.agreement import scoring
from turnscore_assessment.agreement.scoring import read_judged_dialogues
from turnscore_client._command.registry import app
from turnscore_client.testing import MockTurnScore

ROWS = [build_judged(number, system="AB"[number % 2]) for number in range(12)]


@pytest.fixture(autouse=True)
def bundles(monkeypatch):
    loaded = {"oracle": loaded_fake(OracleScorer(), "oracle"), "fake": loaded_fake(FakeScorer())}
    monkeypatch.setattr(scoring, "open_engine", lambda names: engine_of({name: loaded[name] for name in names}))


def run(file, *options, bundles=("oracle", "fake"), code=0):
    given = [word for name in bundles for word in ("--bundle", name)]
    output = ["--output", str(file.parent / "out"), "--rounds", "50"]
    return invoke(app, ["agreement", file, *given, *output, *options], code)


def measure(file, *options):
    run(file, *options)
    return json.loads((file.parent / "out" / "agreement.json").read_text())


def rows_of(report, level, system="all"):
    [group] = [each for each in report["levels"][level]["groups"] if each["system"] == system]
    return {row["name"]: row for row in group["rows"]}


@pytest.fixture
def file(tmp_path):
    return write_judged(tmp_path / "judged.jsonl", ROWS)


def judged_turns(file):
    dialogues = read_judged_dialogues(file)
    found = [(each.turns[place].text, quality, place) for each in dialogues for place, quality in
             each.turn_qualities.items()]  # fmt: skip
    texts, qualities, places = zip(*found, strict=True)
    return list(texts), list(qualities), list(places)


def test_baselines_are_what_scipy_makes_of_lengths_and_positions(file):
    texts, qualities, places = judged_turns(file)
    rows = rows_of(measure(file, "--scorer", "fake"), "turn")
    expected = {
        "length in characters": [len(text) for text in texts],
        "length in words": [len(text.split()) for text in texts],
        "position in the dialogue": places,
        "fake": [len(text.split()) for text in texts],
    }
    assert set(rows) == set(expected)
    for name, column in expected.items():
        assert rows[name]["observations"] == 48
        assert rows[name]["is_baseline"] is (name != "fake")
        assert rows[name]["pearson"]["value"] == pytest.approx(stats.pearsonr(column, qualities).statistic)
        assert rows[name]["spearman"]["value"] == pytest.approx(stats.spearmanr(column, qualities).statistic)
        assert rows[name]["kendall"]["value"] == pytest.approx(stats.kendalltau(column, qualities).statistic)


def test_dialogues_are_compared_with_their_turns_only_where_none_is_judged(tmp_path, file):
    averaged = measure(file, "--scorer", "fake", "--level", "dialogue")
    assert set(averaged["levels"]) == {"dialogue"}
    assert "means of people's judgements of turns" in averaged["levels"]["dialogue"]["against"]
    qualities = [float(number) for number in range(8)]
    judged_rows = [build_judged(number, quality=quality) for number, quality in enumerate(qualities)]
    judged_file = write_judged(tmp_path / "judged.jsonl", [*judged_rows, build_judged(99)])
    judged = measure(judged_file, "--scorer", "fake")["levels"]["dialogue"]
    assert judged["against"] == "people's judgements of dialogues"
    [group] = judged["groups"]
    assert (group["observations"], group["dialogues"]) == (8, 8)
    rows = {row["name"]: row for row in group["rows"]}
    texts = [[turn["text"] for turn in row["turns"] if turn["speaker"] == "system"] for row in judged_rows]
    means = [np.mean([len(text.split()) for text in own[1:]]) for own in texts]
    assert rows["fake"]["spearman"]["value"] == pytest.approx(stats.spearmanr(means, qualities).statistic)


def test_table_page_and_picture_carry_the_figures(file):
    result = run(file, "--scorer", "oracle")
    figures = ("| all | oracle | 48 | 1.000 [1.000, 1.000] |", "| A | length in words (baseline) | 24 |")
    page = (file.parent / "out" / "agreement.md").read_text()
    assert all(line in page for line in figures)
    assert "turnscore agreement judged.jsonl --scorer oracle --bundle oracle" in page
    assert "turn level: 48 turns of 12 dialogues, against people's judgements of turns" in result.stdout
    assert "1.000 [1.000, 1.000]" in result.stdout
    assert (file.parent / "out" / "agreement.png").read_bytes().startswith(b"\x89PNG")


def refusal(file, *options):
    return run(file, *options, code=1).stderr


def test_what_cannot_be_measured_is_refused_with_the_reason(tmp_path, file):
    assert "no scorer 'mood' is loaded; loaded: oracle, fake" in refusal(file, "--scorer", "mood")
    unknown = refusal(file, "--scorer", "fake", "--part", "mood")
    assert "no scorer has a part 'mood'; fake has value" in unknown
    few = write_judged(tmp_path / "few.jsonl", [build_judged(1, pairs=2)])
    assert f"{few}: cannot measure: turn level, as 2 turns have a `quality` and 3 are needed" in refusal(
        few, "--scorer", "fake"
    )
    constant = [{"id": str(n), "turns": [{"speaker": "system", "text": "hi 5", "quality": 0.5}]} for n in range(5)]
    same = write_judged(tmp_path / "same.jsonl", constant)
    assert "turn level, as the `quality` of all 5 turns is 0.5" in refusal(same, "--scorer", "fake", "--level", "turn")
    bad = write_judged(tmp_path / "bad.jsonl", [*ROWS, {"id": "x", "turns": [{"speaker": "system"}]}])
    assert f"{bad}, line 13: turns.0.text: field required" in refusal(bad, "--scorer", "fake")


def test_turns_without_text_are_left_out_and_counted(tmp_path):
    silence = {"speaker": "system", "text": " ", "quality": 0.1}
    rows = [{**row, "turns": [*row["turns"][:2], silence, *row["turns"][2:]]} for row in ROWS]
    report = measure(write_judged(tmp_path / "silent.jsonl", rows), "--scorer", "oracle")
    assert rows_of(report, "turn")["oracle"]["observations"] == 48
    assert report["left_out"] == ["12 judged turns without text: the service refuses to score them"]


def test_without_a_bundle_the_service_is_asked(file, monkeypatch):
    mock = MockTurnScore(scores=lambda request: {"engagement": float(request.response.split()[-1])})
    opened = []

    def open_client(url, *, timeout_seconds):
        opened.append((url, timeout_seconds))
        return mock.async_client()

    monkeypatch.setattr(command_line, "AsyncTurnScoreClient", open_client)
    options = ("--scorer", "engagement", "--url", "http://here:1", "--timeout", "7", "--level", "turn")
    run(file, *options, bundles=())
    assert opened == [("http://here:1", 7.0)]
    assert "engagement | 48 | 1.000 [1.000, 1.000]" in (file.parent / "out" / "agreement.md").read_text()


def test_a_scorer_has_to_be_named_and_either_bundles_or_a_service(file):
    run(file, "--scorer", "fake", "--url", "http://localhost:1", code=2)
    assert "--scorer" in run(file, code=2).output
