"""`turnscore compare`: files of scores, unscored dialogues, ratings; and what it refuses."""

import json

import numpy as np
import pytest
from support.files import run_command, write_lines
from turnscore_assessment import command_line
from turnscore_assessment.comparison.comparison import read_score_file
from turnscore_client._command.registry import app
from turnscore_client.testing import MockTurnScore
from typer.testing import CliRunner

RUNNER = CliRunner()


def score(value, tokens=10, **details):
    counted = {"used": tokens, "dropped": 0}
    return {"value": value, "percentile": 50, "details": details, "model": "m:1", "tokens": counted}


def dialogue_line(name, turns):
    scored = [{"index": place, "scores": scores, "errors": {}} for place, scores in enumerate(turns)]
    return {"id": f"d{name}", "line": name, "request_id": "r", "turns": scored, "dialogue": {}, "timing_ms": {}}


def write_scores(path, shift, seed, count=40, tokens=10):
    """Two scorers: `quality` differs between the systems by the shift, `engagement` by nothing."""
    shared = np.random.default_rng(0).normal(0, 0.2, count)
    generator = np.random.default_rng(seed)
    rows = []
    for place in range(count):
        values = shared[place] + generator.normal(0, 0.1, (3, 2)) + [shift, 0]
        turns = [
            {"quality": score(q, tokens + int(generator.integers(3)), sound=q / 2), "engagement": score(e)}
            for q, e in values.tolist()
        ]
        rows.append(dialogue_line(place, turns))
    return write_lines(path, *rows)


@pytest.fixture
def files(tmp_path):
    return [str(write_scores(tmp_path / "a.jsonl", 0.1, 1)), str(write_scores(tmp_path / "b.jsonl", 0, 2))]


def run(*arguments, code=None):
    result = RUNNER.invoke(app, ["compare", *arguments])
    assert code in (None, result.exit_code), result.output
    return result


def run_json(tmp_path, *arguments):
    run(*arguments, "--output", str(tmp_path / "out" / "found.json"), code=0)
    return json.loads((tmp_path / "out" / "found.json").read_text())


def test_the_verdict_is_taken_after_the_correction(tmp_path):
    """One of four scorers has p = .031: alone decided, one of four not."""
    generator = np.random.default_rng(0)
    rest = generator.normal(0, 1, (2, 30, 3))
    first = np.stack([np.linspace(-1, 1, 30) + shift for shift in (0.34, 0)])
    files = []
    for side, name in enumerate("ab"):
        values = np.column_stack([first[side], rest[side]]).tolist()
        scores = [{f"s{place}": score(value) for place, value in enumerate(each)} for each in values]
        rows = [dialogue_line(n, [each]) for n, each in enumerate(scores)]
        files.append(str(write_lines(tmp_path / f"{name}.jsonl", *rows)))
    [alone] = run_json(tmp_path, *files, "--no-pair", "--scorers", "s0")["pairs"]
    family = run_json(tmp_path, *files, "--no-pair")["pairs"]
    assert 0.0125 < alone["found"]["p_value"] < 0.05
    assert alone["is_decided"] is True
    assert family[0]["found"] == alone["found"]
    assert family[0]["p_corrected"] > 0.05
    assert [row["is_decided"] for row in family] == [False] * 4
    outlook = family[0]["outlook"]
    assert outlook["more"] == outlook["needed"] - 30 > 0
    assert outlook["needed_at_best"] < outlook["needed"]
    assert outlook["smallest_difference"] > family[0]["found"]["difference"]["value"]
    assert "decided " not in run(*files, "--no-pair").output


def test_dialogues_without_scores_go_to_the_service(tmp_path, monkeypatch):
    spoken = [("user", "hi"), ("system", "well hello"), ("system", " ")]
    rows = [{"id": str(n), "turns": [{"speaker": who, "text": text} for who, text in spoken]} for n in range(9)]
    files = [str(write_lines(tmp_path / f"{name}.jsonl", *rows)) for name in "ab"]
    mock = MockTurnScore()
    monkeypatch.setattr(command_line, "AsyncTurnScoreClient", lambda url, **_: mock.async_client())
    [pair] = run_json(tmp_path, *files, "--scorers", "engagement")["pairs"]
    assert (pair["scorer"], pair["found"]["difference"]["value"]) == ("engagement", 0)
    assert [len(request.body["turns"]) for request in mock.requests] == [2] * 18


def test_what_the_client_writes_is_what_is_read(tmp_path):
    """Through `turnscore score` itself, so that a change of its form is found here."""
    turns = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}] * 2
    rows = [{"id": f"d{n}", "turns": turns} for n in range(4)] + [{"id": "broken", "turns": []}]
    asked = [{"id": f"t{n}", "dialogue": "d", "context": [], "response": "hello"} for n in range(4)]
    for name, lines in (("a", rows), ("b", asked)):
        write_lines(tmp_path / f"{name}.jsonl", *lines)
        source, output = str(tmp_path / f"{name}.jsonl"), str(tmp_path / f"{name}-scored.jsonl")
        run_command(MockTurnScore(), "score", source, "--output", output)
    dialogues = read_score_file(tmp_path / "a-scored.jsonl")
    assert [dialogue.name for dialogue in dialogues.scored] == ["d0", "d1", "d2", "d3"]
    assert dialogues.failed == 1
    assert all(dialogue.lengths(scorer)["turns"] == 2 for dialogue in dialogues.scored for scorer in dialogue.scores[0])
    turns_read = read_score_file(tmp_path / "b-scored.jsonl")
    assert [(dialogue.name, len(dialogue.scores)) for dialogue in turns_read.scored] == [("d", 4)]


def test_a_service_that_fails_is_named_with_the_line(tmp_path, monkeypatch):
    monkeypatch.setattr(command_line, "CALL_SECONDS", 0.2)
    turns = [{"speaker": "system", "text": "hello"}]
    file = str(write_lines(tmp_path / "a.jsonl", {"turns": turns}))
    assert "a.jsonl, line 1: " in run(file, file, "--url", "http://127.0.0.1:9", code=1).stderr


WRONG_LINES = [
    ("[1]", "line 2: is not a JSON object"),
    ({"id": "x"}, "line 2: has neither `scores` nor `turns`"),
    ({"scores": {"q": {"value": 1e200}}}, "line 2: scores.q.value: "),
    ('{"scores": {"q": {"value": NaN}}}', "line 2: is not JSON: NaN is not valid JSON"),
    ({"turns": [{"scores": {"q": {"value": 1, "tokens": {"used": -1}}}}]}, "turns.0.scores.q.tokens.used: "),
    ({"id": "d0", "turns": [{"scores": {}}]}, "line 2: id: 'd0' was already used"),
    ({"turns": [{"speaker": "user", "text": "hi"}]}, "line 2: turns: there is no system turn to score"),
]


@pytest.mark.parametrize(("line", "reason"), WRONG_LINES)
def test_a_wrong_line_is_named_with_its_field(tmp_path, line, reason):
    file = str(write_lines(tmp_path / "a.jsonl", dialogue_line(0, [{"q": score(1)}]), line))
    assert reason in run(file, file, code=1).stderr


MISFITTING_OPTIONS = [
    (["--scorers", "fed"], 1, "'fed' is not scored in all files; choose from quality, engagement"),
    (["--sequential", "--bounds", "1,0"], 2, "the first the smaller one"),
    (["--sequential", "--bounds", "0,0.1"], 1, "bounds: quality has "),
    (["--systems", "A,B"], 2, "goes with --sequential"),
    (["--sequential", "--margin", "0"], 2, "must be above 0"),
    (["--details", "--sequential"], 2, "does not go with --sequential"),
]


@pytest.mark.parametrize(("options", "code", "reason"), MISFITTING_OPTIONS)
def test_options_that_do_not_fit_are_refused(files, options, code, reason):
    done = run(*files, *options, code=code)
    assert reason in " ".join(done.stderr.replace("│", " ").split())


def test_files_without_namesakes_cannot_be_paired(tmp_path, files):
    other = write_lines(tmp_path / "c.jsonl", *[{"id": f"x{n}", "scores": {"quality": score(n)}} for n in range(5)])
    done = run(files[0], str(other), "--pair")
    assert "0 dialogues have the same `id` in " in done.stderr
    assert "6 are needed to pair" in done.stderr
    assert "independent samples" in run(files[0], str(other)).output


def test_scores_are_looked_at_as_they_come(files, tmp_path):
    found = run_json(tmp_path, *files, "--sequential", "--scorers", "quality")
    assert found[0]["verdict"] == "a is better"
    assert 30 <= found[0]["decided_at"] <= 40
    assert found[0]["looks"][0]["low"] is None
    betting = run_json(tmp_path, *files, "--sequential", "--bounds=-2,2")
    assert [each["what"] for each in betting] == ["quality", "engagement"]
    assert "alpha 0.05 is shared by 2 scorers" in betting[0]["notes"]
    assert "alpha 0.025" in betting[0]["method"]


def test_a_scorer_without_a_pair_takes_no_share_of_alpha(tmp_path):
    sides = []
    for side, own in (("a", range(10)), ("b", range(10, 20))):
        scores = [{"quality": score(n / 40), **({"other": score(0.5)} if n in own else {})} for n in range(20)]
        lines = [{"id": str(n), "scores": each} for n, each in enumerate(scores)]
        sides.append(str(write_lines(tmp_path / side, *lines)))
    [found] = run_json(tmp_path, *sides, "--sequential")
    assert (found["what"], [note for note in found["notes"] if "alpha" in note]) == ("quality", [])
    assert "no pair of dialogues has other on both sides" in run(*sides, "--sequential", "--scorers", "other").stderr


def write_ratings_of(path, systems, workers=12):
    """A study without a degraded system, in which every worker rates every system."""
    generator = np.random.default_rng(3)
    rows = [
        {"worker": f"w{n}", "hit": f"h{n}", "system": name, "ratings": {"fun": float(mean + generator.normal(0, 5))}}
        for n in range(workers)
        for name, mean in systems.items()
    ]
    return str(write_lines(path, {"study": "s", "criteria": [{"name": "fun"}]}, *rows))


def test_three_systems_and_their_ratings_stand_on_one_page_with_all_pairs(files, tmp_path):
    third = str(write_scores(tmp_path / "c.jsonl", -0.1, 3))
    ratings = write_ratings_of(tmp_path / "r.jsonl", {"a": 80, "b": 50, "c": 50})
    page = tmp_path / "page.html"
    options = ("--ratings", ratings, "--html", str(page), "--output", str(tmp_path / "found.json"))
    assert f"wrote {page}" in run(*files, third, *options, code=0).output
    found = json.loads((tmp_path / "found.json").read_text())
    rows = {(row["scorer"], row["a"], row["b"]): row for row in found["pairs"]}
    both = [("a", "b"), ("a", "c"), ("b", "c")]
    assert list(rows) == [(name, *pair) for name in ("quality", "engagement", "rating") for pair in both]
    decided = {key for key, row in rows.items() if row["is_decided"]}
    assert decided == {*(("quality", *pair) for pair in both), ("rating", "a", "b"), ("rating", "a", "c")}
    known = rows["quality", "a", "c"]
    assert known["found"]["difference"]["value"] == pytest.approx(0.2, abs=0.05)
    assert (known["found"]["is_paired"], known["outlook"]["more"]) == (True, 0)
    assert "Holm over 9 tests" in found["method"]
    assert {each["system"]: each["figures"]["rating"]["value"] > 70 for each in found["systems"]} == {
        "a": True, "b": False, "c": False,
    }  # fmt: skip
    text = page.read_text()
    assert ">c</th>" in text
    assert "<code>turnscore compare a.jsonl b.jsonl c.jsonl --ratings r.jsonl" in text
    assert text.count("<svg") == 3
    looser = run_json(tmp_path, *files, third, "--ratings", ratings, "--correction", "bh")
    pairs = zip(found["pairs"], looser["pairs"], strict=True)
    assert all(strict["p_corrected"] >= loose["p_corrected"] >= loose["found"]["p_value"] for strict, loose in pairs)
    assert "Benjamini-Hochberg over 9 tests" in looser["method"]
    alone = run_json(tmp_path, "--ratings", ratings)
    assert [(row["a"], row["b"]) for row in alone["pairs"]] == both
    fourth = str(write_scores(tmp_path / "d.jsonl", 0, 4))
    assert "rates no system 'd'" in run(*files, fourth, "--ratings", ratings).stderr


def test_ratings_of_different_workers_are_said_to_be_independent_and_a_system_of_failing_workers_is_left_out(
    files, tmp_path
):
    rows, criteria = [], ("fun", "ease", "sense", "wit")
    generator = np.random.default_rng(0)
    for place, name in enumerate("abc"):
        for n in range(12):
            own = {"worker": f"{name}{n}", "hit": f"h{name}{n}"}
            # Workers of c find the degraded system better than theirs.
            for system, mean in ((name, 60 + 5 * place), ("bad", 90 if name == "c" else 10)):
                ratings = {each: float(mean + generator.normal(0, 3)) for each in criteria}
                rows.append({**own, "system": system, "ratings": ratings, "degraded": system == "bad"})
    header = {"study": "s", "criteria": [{"name": each} for each in criteria]}
    ratings = str(write_lines(tmp_path / "r.jsonl", header, *rows))
    third = str(write_scores(tmp_path / "c.jsonl", 0, 3))
    found = run_json(tmp_path, *files, third, "--ratings", ratings)
    assert [(row["a"], row["b"]) for row in found["pairs"] if row["scorer"] == "rating"] == [("a", "b")]
    assert "rating: no worker who passes rated c; left out" in found["notes"]
    assert found["method"].startswith("dialogues of the same id in pairs, ratings as independent samples; ")
    alone = run_json(tmp_path, *files, "--scorers", "quality")
    assert alone["method"].startswith("dialogues of the same id in pairs; ")


def test_few_workers_cannot_decide_many_tests_however_far_the_systems_are_apart(tmp_path):
    """Six pairs give no p below 2 / 2**6, and six tests need one below .05 / 6, which eight pairs can give."""
    ratings = write_ratings_of(tmp_path / "r.jsonl", {"a": 80, "b": 50, "c": 20}, workers=6)
    pairs = run_json(tmp_path, "--ratings", ratings, "--details")["pairs"]
    assert [(row["found"]["p_value"], row["is_decided"], row["outlook"]["more"]) for row in pairs] == [
        (1 / 32, False, 2)
    ] * 6


def test_a_share_of_few_dialogues_has_wilsons_interval_and_a_constant_score_none(tmp_path):
    sides = []
    for name in "ab":
        rows = [{"id": f"{name}{n}", "scores": {"quality": {**score(0.5), "label": "fair"}}} for n in range(10)]
        sides.append(str(write_lines(tmp_path / f"{name}.jsonl", *rows)))
    figures = run_json(tmp_path, *sides)["systems"][0]["figures"]
    assert figures["quality: share with a low turn"] == {"value": 0, "low": 0, "high": pytest.approx(0.2775, abs=1e-3)}
    assert figures["quality"] == {"value": 0.5, "low": None, "high": None}


def test_one_file_and_too_many_are_refused_and_namesakes_are_told_apart(files, tmp_path):
    for given in ([files[0]], files * 11, []):
        run(*given, code=2)
    (tmp_path / "other").mkdir()
    other = str(write_scores(tmp_path / "other" / "a.jsonl", 0, 5))
    assert [each["system"] for each in run_json(tmp_path, files[0], other)["systems"]] == [files[0], other]
    assert [each["system"] for each in run_json(tmp_path, files[0], files[0])["systems"]] == [
        f"{files[0]} (1)", f"{files[0]} (2)",
    ]  # fmt: skip


def test_plain_dialogues_are_scored_here_by_the_shipped_models(tmp_path):
    asked = ["i lost my keys", "my cat is ill", "what do you do on sundays?", "i start a new job tomorrow"]
    replies = {
        "kind": ["oh no, where did you last see them?", "i am sorry, what does the vet say?",
                 "i mostly read and go for walks.", "congratulations! what will you work on?"],
        "mad": ["cows fly purple the", "the the banana", "seven is a green", "no no tax keys cow"],
    }  # fmt: skip
    files = []
    for name, said in replies.items():
        pairs = zip(asked, said, strict=True)
        turns = [[{"speaker": "user", "text": a}, {"speaker": "system", "text": b}] for a, b in pairs]
        rows = [{"id": str(number), "turns": each} for number, each in enumerate(turns)]
        files.append(str(write_lines(tmp_path / f"{name}.jsonl", *rows)))
    found = run_json(tmp_path, *files, "--engine", "local", "--scorers", "quality")
    kind, mad = (each["figures"]["quality"]["value"] for each in found["systems"])
    assert kind > mad
    refused = run(*files, "--engine", "local", "--scorers", "qualty").stderr
    assert "names qualty, for which there is no bundle" in refused
