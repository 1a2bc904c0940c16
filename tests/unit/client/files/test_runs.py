"""Runs of `turnscore score` from end to end: nothing is lost, nothing overwritten, and it says what it did."""

import asyncio
import gzip
import json
import os
import re
import signal
from contextlib import suppress
from importlib.metadata import entry_points
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from support.files import run_command, write_lines
from turnscore_client import InternalError, InvalidRequestError, OverloadedError
from turnscore_client._command.score import FileJob, score_file
from turnscore_client._files.rows import read_context, read_lines
from turnscore_client._files.runs import StoppedError
from turnscore_client._files.scoring import UndeliveredError
from turnscore_client._mock import MockAnswers
from turnscore_client.testing import MockTurnScore
from turnscore_wire import Limits, ModelDescription
from typer import BadParameter

TURNS = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello there"}]


def run(mock, *arguments, code=None):
    result = run_command(mock, "score", *arguments)
    assert code in (None, result.exit_code), result.stderr
    return result


def input_of(tmp_path, count):
    lines = [{"id": f"d-{number}", "response": f"{number}", "mood": number} for number in range(1, count + 1)]
    return write_lines(tmp_path / "dialogues.jsonl", *lines)


def failing(broken, asked=None):
    """A service that fails on these responses, and notes what it is asked."""

    def scores(request):
        if asked is not None:
            asked.append(request.response)
        if request.response in broken:
            raise InternalError("the model failed")
        return {"engagement": float(request.response) / 10}

    return MockTurnScore(scores)


def rows_of(path):
    return lines_in(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def without_ids(rows):
    return [{name: value for name, value in row.items() if name != "request_id"} for row in rows]


class Limited:
    """A service with a key of so many turns per second that is gone at two moments, on the mock's clock."""

    def __init__(self, per_second, gone_at=()):
        self.mock = MockTurnScore(self.scores)
        self.per_second, self.level, self.filled_at = per_second, float(per_second), 0.0
        self.gone_at = list(gone_at)
        self.scored = []

    def scores(self, request):
        now = self.mock.clock.seconds
        self.level = min(self.per_second, self.level + (now - self.filled_at) * self.per_second)
        self.filled_at = now
        if self.level < 1:
            raise OverloadedError("too fast", retry_after_ms=int(1000 * (1 - self.level) / self.per_second) + 1)
        self.level -= 1
        self.scored.append(request.response)
        if self.gone_at and len(self.scored) == self.gone_at[0]:
            self.gone_at.pop(0)
            self.mock.break_next(times=25)
        return {"engagement": float(request.response) / 1000}


def test_a_limited_key_and_two_restarts_lose_no_line(tmp_path):
    file, output = input_of(tmp_path, 200), tmp_path / "scores.jsonl"
    service = Limited(50, gone_at=(50, 150))
    result = run(service.mock, file, "--output", output, "--concurrency", 16)
    rows = rows_of(output)
    assert result.exit_code == 0, result.stderr
    assert [(row["line"], row["id"], row["mood"]) for row in rows] == [(n, f"d-{n}", n) for n in range(1, 201)]
    assert [row["scores"]["engagement"]["value"] for row in rows] == [n / 1000 for n in range(1, 201)]
    assert len(service.scored) == 200
    assert service.mock.clock.seconds < 2 * (200 / 50) + 2 * 120


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.jsonl.gz"])
def test_the_same_command_goes_on_where_it_was_stopped(tmp_path, name):
    file, output, whole = input_of(tmp_path, 40), tmp_path / name, tmp_path / f"whole-{name}"
    service = Limited(1000, gone_at=(17,))
    assert "repeat the command to resume" in run(service.mock, file, "--output", output, "--wait", 1, code=3).stderr
    kept = len(rows_of(output))
    assert 0 < kept < 40
    mock = MockTurnScore(lambda request: {"engagement": float(request.response) / 1000})
    resumed = run(mock, file, "--output", output, code=0)
    assert f"{kept} lines are in {output}; going on behind them" in resumed.stderr
    assert len([request for request in mock.requests if request.path == "/v1/score"]) == 40 - kept
    run(mock, file, "--output", whole)
    assert without_ids(rows_of(output)) == without_ids(rows_of(whole))
    written, asked = whole.read_bytes(), len(mock.requests)
    again = run(mock, file, "--output", whole)
    assert resumed.stderr.splitlines()[-2:] == again.stderr.splitlines()[-2:]
    assert (again.exit_code, whole.read_bytes()) == (0, written)
    assert [request.path for request in mock.requests[asked:]] == ["/v1/models"]


FOREIGN_OUTPUTS = [
    ("of yesterday", "this command did not write its line"),
    ('{"line": 2}\n{"line": 2}\n', "this command did not write its line"),
    ('{"line": "1"}\n', "this command did not write its line"),
    ("[]\n", "this command did not write its line"),
    ('{"line": 3, "id": "d-3", "response": "another text"}\n', "holds the scores of another file"),
    ('{"line": 1, "id": "d-1", "response": "another text"}\n', "holds the scores of another file"),
    ('{"line": 9, "error": {}}\n', "holds the scores of another file"),
    ('{"line": 1, "scores": {"fed": 3}}\n', "was not written by this command"),
]


@pytest.mark.parametrize(("text", "reason"), FOREIGN_OUTPUTS)
def test_a_file_that_is_not_this_inputs_output_is_never_overwritten(tmp_path, text, reason):
    file, output = input_of(tmp_path, 3), tmp_path / "scores.jsonl"
    output.write_text(text + ("" if text.endswith("\n") else "\n"))
    before, mock = output.read_bytes(), MockTurnScore()
    result = run(mock, file, "--output", output, code=2)
    assert reason in re.sub(r"[\s│]+", " ", result.stderr)
    assert (output.read_bytes(), mock.requests) == (before, [])


def test_a_run_that_is_ended_keeps_its_rows_and_says_so(tmp_path):
    file, output = input_of(tmp_path, 99), tmp_path / "scores.jsonl"

    def scores(request):
        if request.response == "50":
            os.kill(os.getpid(), signal.SIGTERM)
        return by_number(request)

    before = signal.getsignal(signal.SIGTERM)
    stopped = run(MockTurnScore(scores), file, "--output", output, code=3)
    assert "stopped: interrupted; repeat the command to resume" in stopped.stderr
    assert signal.getsignal(signal.SIGTERM) is before
    done = len(rows_of(output))
    assert 0 < done < 99
    assert f"{done} lines are in" in run(MockTurnScore(by_number), file, "--output", output, code=0).stderr


def test_a_dialogue_s_row_has_the_user_turns_signals_and_a_user_s_turn_is_a_line_of_its_own(tmp_path):
    mock = MockTurnScore({"quality": 0.5, "reaction": 0.2}, signals={"reaction": ["frustrated"]})
    lines = [{"turns": TURNS}, {"context": TURNS, "response": "no!", "speaker": "user", "scorers": ["reaction"]}]
    file, output = write_lines(tmp_path / "a.jsonl", *lines), tmp_path / "b.jsonl"
    run(mock, file, "--output", output, "--scorers", "quality,reaction", code=0)
    dialogue, turn = rows_of(output)
    user, system = dialogue["turns"]
    assert (user["scores"]["reaction"]["signals"], list(system["scores"])) == (["frustrated"], ["quality"])
    assert (turn["scores"]["reaction"]["signals"], turn["speaker"]) == (["frustrated"], "user")


def test_the_summary_has_means_with_intervals_low_turns_and_the_worst_dialogues(tmp_path):
    lines = [{"id": f"d-{n}", "turns": [*TURNS, *TURNS[: 2 * (n % 2)]]} for n in range(20)]
    lines += [{"id": "blank", "turns": [*TURNS, {"speaker": "system", "text": " "}]}]
    file = write_lines(tmp_path / "dialogues.jsonl", *lines)
    values = iter([*range(100), *range(100)])
    mock = MockTurnScore(lambda request: {"engagement": next(values) / 100}, thresholds={"engagement": 0.1})
    result = run(mock, file, "--output", tmp_path / "scores.jsonl", code=0)
    assert "scored 21 of 21 lines in" in result.stderr
    assert re.search(r"engagement: 31 turns, mean 0\.150 \[0\.\d+, 0\.\d+\], percentile 15\.0 \[", result.stderr)
    assert re.search(r"low 32\.3 \[\d+\.\d, \d+\.\d\] %", result.stderr)
    assert "1 turns in which the system said nothing are not scored" in result.stderr
    assert re.search(r"lowest mean percentiles: line \d+ d-\d+ \(\d\)", result.stderr)
    assert "hello" not in result.stderr


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.jsonl.gz"])
def test_lines_that_failed_are_asked_again_and_no_others(tmp_path, name):
    file, output, asked = input_of(tmp_path, 9), tmp_path / name, []
    run(failing({"2", "5"}), file, "--output", output, code=1)
    again = run(failing({"5"}, asked), file, "--output", output, code=1)
    assert f"2 lines in {output} failed and are asked again" in again.stderr
    assert asked == ["2", "5"]
    run(failing(()), file, "--output", output, code=0)
    rows = rows_of(output)
    assert [row["line"] for row in rows] == [*range(1, 10)]
    assert [row["scores"]["engagement"]["value"] for row in rows] == [n / 10 for n in range(1, 10)]


@pytest.mark.parametrize("name", ["context", "turns"])
def test_a_chat_message_among_the_turns_of_a_line_is_told_where_it_belongs(tmp_path, name):
    said = {name: [{"role": "user", "content": "hi"}], **({"response": "hello"} if name == "context" else {})}
    file, output = write_lines(tmp_path / "lines.jsonl", said), tmp_path / "scores.jsonl"
    run(MockTurnScore(), file, "--output", output)
    [row] = rows_of(output)
    assert row["error"]["field"] == f"{name}.0.speaker"
    assert row["error"]["message"].endswith("go in `messages`")


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.jsonl.gz"])
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_an_output_that_is_written_again_stays_a_link_and_keeps_its_mode(tmp_path, name, is_cut_off):
    (tmp_path / "kept").mkdir()
    file, output, kept = input_of(tmp_path, 4), tmp_path / name, tmp_path / "kept" / name
    output.symlink_to(kept)
    run(failing({"2"}), file, "--output", output)
    kept.chmod(0o640)
    if is_cut_off:
        kept.write_bytes(kept.read_bytes()[:-10])
    run(failing(()), file, "--output", output, code=0)
    assert (output.is_symlink(), kept.stat().st_mode & 0o777) == (True, 0o640)
    assert [(row["line"], "scores" in row) for row in rows_of(kept)] == [(n, True) for n in range(1, 5)]
    assert sorted(path.name for path in kept.parent.iterdir()) == [name]


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("option", ["--output", "--junit"])
def test_no_file_is_two_of_input_output_and_report(tmp_path, option, is_there):
    file, output, mock = input_of(tmp_path, 2), tmp_path / "scores.jsonl", MockTurnScore()
    if is_there:
        run(mock, file, "--output", output)
    before, asked = [path.read_bytes() for path in tmp_path.iterdir()], len(mock.requests)
    wrong = [["--output", output, "--junit", file]] if option == "--junit" else [["--output", file]]
    if option == "--junit":
        wrong.append(["--output", output, "--junit", tmp_path / "." / ".." / tmp_path.name / output.name])
    for words in wrong:
        assert option in run(mock, file, *words, code=2).stderr
    assert ([path.read_bytes() for path in tmp_path.iterdir()], len(mock.requests)) == (before, asked)


def test_a_run_over_failed_lines_that_is_stopped_keeps_every_row(tmp_path):
    file, output = input_of(tmp_path, 9), tmp_path / "scores.jsonl"
    run(failing({"3"}), file, "--output", output)
    before = rows_of(output)
    mock = MockTurnScore({"engagement": 0.5})
    mock.break_next(times=1000)
    stopped = run(mock, file, "--output", output, "--wait", 1)
    told = [stopped.stderr.count(f"{words} 1 s") for words in ("turnscore: waits", "the service took no line for")]
    assert (stopped.exit_code, told) == (3, [1, 1])
    assert without_ids(rows_of(output)) == without_ids(before)
    assert [path.name for path in tmp_path.iterdir() if "again" in path.name] == []


@pytest.mark.parametrize("more", [0, 2])
def test_a_pipe_s_failed_lines_are_not_asked_again_and_those_behind_them_are(tmp_path, monkeypatch, more):
    file, output, asked = input_of(tmp_path, 4 + more), tmp_path / "scores.jsonl", []
    lines = file.read_bytes().splitlines(keepends=True)

    def pipe(raw):
        monkeypatch.setattr("turnscore_client._files.rows.sys.stdin", SimpleNamespace(buffer=BytesIO(raw)))
        mock = failing({"2"}, asked)
        job = FileJob(file=Path("-"), output=output, scorers=None, concurrency=2)
        return asyncio.run(score_file(mock.async_client(max_retries=0), job))

    assert pipe(b"".join(lines[:4])) == 1
    before = rows_of(output)
    asked.clear()
    assert pipe(b"".join(lines)) == 1
    assert asked == ["5", "6"][:more]
    assert rows_of(output)[:4] == before
    assert [row["line"] for row in rows_of(output)] == [*range(1, 5 + more)]
    asked.clear()
    run(failing({"2"}, asked), file, "--output", output)
    assert asked == ["2"]


def test_what_is_demanded_of_a_run_decides_its_exit_code_and_is_told_to_ci(tmp_path):
    file, output, report = input_of(tmp_path, 3), tmp_path / "scores.jsonl", tmp_path / "junit.xml"
    mock = MockTurnScore(lambda request: {"quality": float(request.response) / 10}, thresholds={"quality": 0.15})
    words = [file, "--output", output, "--junit", report]
    run(mock, *words, "--fail-under", "quality=0.2", code=0)
    low = run(mock, *words, "--fail-on", "low", "--fail-under", "quality=0.21", code=4)
    assert "quality: the mean value is 0.200, and at least 0.21 is demanded" in low.stderr
    suite = ElementTree.parse(report).getroot()
    told = {case.get("name"): [each.get("message") for each in case] for case in suite}
    assert told["line 1, d-1"] == ["scored turn 1: quality is low: 0.100"]
    assert (told["line 2, d-2"], len(told["all turns"])) == ([], 2)


def test_a_failed_line_is_an_error_for_ci_and_no_text_breaks_its_xml(tmp_path):
    file, output, report = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "junit.xml"
    file.write_text('{"id": "a\\u0000<\\ud800&", "response": ""}\n')
    run(MockTurnScore({"quality": 0.5}), file, "--output", output, "--junit", report, code=1)
    [case, _] = ElementTree.parse(report).getroot()
    assert (case.get("name"), case[0].tag) == ("line 1, a?<?&", "error")


def test_one_turn_is_scored_from_the_command_line(tmp_path):
    mock = MockTurnScore({"quality": 0.1}, thresholds={"quality": 0.2})
    words = ["--turn", "ok.", "--context", "hello, how can i help?", "--context", "where is my order?"]
    found = run(mock, *words, "--fail-on", "low")
    assert (found.exit_code, json.loads(found.stdout)["scores"]["quality"]["label"]) == (4, "low")
    run(mock, *words, code=0)
    run(mock, "--turn", " ", code=1)
    run(mock, "--turn", "ok.", input_of(tmp_path, 1), code=2)
    for wrong in (["--fail-under", "quality"], ["--fail-under", "=1"], ["--fail-under", "quality=nan"]):
        assert "--fail-under" in run(mock, *words, *wrong, code=2).stderr


TRANSCRIPT = "User: hi\nBot: hello!\nhow can I help?\n\n- Human: my order is late\n- **Assistant**: ok.\n"
TABLE = """id,context,response
1,hi,hello
2,"[{""speaker"": ""system"", ""text"": ""so?""}]",ok
3,"User: a
Bot: b",c
"""


def test_transcripts_and_tables_are_scored(tmp_path):
    mock = MockTurnScore({"quality": 0.5})
    (tmp_path / "chats.txt").write_text(TRANSCRIPT)
    run(mock, tmp_path / "chats.txt", "--output", tmp_path / "a.jsonl", code=0)
    rows = rows_of(tmp_path / "a.jsonl")
    assert [(row["line"], row["turns"][1]["text"]) for row in rows] == [(1, "hello!\nhow can I help?"), (5, "ok.")]
    (tmp_path / "turns.csv").write_text(TABLE)
    run(mock, tmp_path / "turns.csv", "--output", tmp_path / "b.jsonl", code=0)
    rows = rows_of(tmp_path / "b.jsonl")
    assert [(row["id"], [turn["speaker"] for turn in row["context"]]) for row in rows] == [
        ("1", ["user"]), ("2", ["system"]), ("3", ["user", "system"]),
    ]  # fmt: skip


TRANSCRIPTS = [
    ("User:\nhi\nBot:\nhello!\nwell?", ["hi", "hello!\nwell?"]),
    ("**User:**\nhi\n**Bot:**\nhello!", ["hi", "hello!"]),
    ("- **User**:\nhi\n> Bot: \nhello!", ["hi", "hello!"]),
    ("User: hi\nBot:\nUser: so?\nBot: ok", ["hi", "", "so?", "ok"]),
    ("User: hi\nAI :)\nyou:???\nBot: ok", ["hi\nAI :)\nyou:???", "ok"]),
    ("User: hi\nyou" + ":" * 300_000 + "x\nBot: ok", ["hi\nyou" + ":" * 300_000 + "x", "ok"]),  # in no time
]


@pytest.mark.parametrize(("text", "said"), TRANSCRIPTS)
def test_a_speaker_may_have_a_line_of_its_own(tmp_path, text, said):
    file, output = tmp_path / "a.txt", tmp_path / "b.jsonl"
    file.write_text(text + "\n\nUser: ho\nBot: ho\n")
    [turns, _] = [json.loads(line.raw)["turns"] for line in read_lines(file)]
    assert [(turn["speaker"], turn["text"]) for turn in turns] == [*zip(("user", "system") * 2, said, strict=False)]
    assert "AI" not in text or [turn["text"] for turn in read_context(text)] == said
    if said[1] == "":
        told = run(MockTurnScore({"quality": 0.5}), file, "--output", output, code=0)
        assert "1 turns in which the system said nothing" in told.stderr
        assert "scores" not in rows_of(output)[0]["turns"][1]


OTHER_LAYOUTS = [
    ("a.txt", b"hello\n", "a.txt, line 1: a dialogue begins with its speaker"),
    ("a.txt", b"User: hi\nBot: \xff\n", "a.txt, line 2: is not UTF-8"),
    ("a.csv", b"context,reply\nhi,ho\n", "line 1: the header names no column `response`; it names context, reply"),
    ("a.csv", b"", "a.csv, line 1: the header names no column `response`"),
    ("a.csv", b"response\n\xff\n", "is no CSV in UTF-8"),
    ("a.csv", b'response\n"' + b"x" * 65_536_001 + b'"\n', "is no CSV in UTF-8: field larger than field limit"),
]


@pytest.mark.parametrize(("name", "content", "told"), OTHER_LAYOUTS)
def test_a_file_of_another_layout_is_refused_with_its_line(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    assert told in run(
        MockTurnScore({"quality": 0.5}), tmp_path / name, "--output", tmp_path / "out.jsonl", code=1
    ).stderr.replace("\n", "")


@pytest.mark.parametrize("cell", ["[" * 100_000, "x" * 140_000, *("[" * n + "]" * n for n in (500, 900, 100_000))])
def test_a_cell_that_cannot_be_scored_is_a_row_and_ends_no_run(tmp_path, cell):
    file, output = tmp_path / "a.csv", tmp_path / "b.jsonl"
    file.write_text(f"id,context,response\n1,{cell},ok\n2,hi,{cell}\n3,hi,ok\n")
    result = run(MockTurnScore({"quality": 0.5}), file, "--output", output)
    assert [(row["id"], row["line"]) for row in rows_of(output)] == [("1", 2), ("2", 3), ("3", 4)]
    assert "scores" in rows_of(output)[2], result.stderr


def test_a_table_s_row_has_the_number_of_its_first_line(tmp_path):
    (tmp_path / "a.csv").write_text('response\n"a\nb"\n\n"c\n\nd"\ne\n')
    assert [line.number for line in read_lines(tmp_path / "a.csv")] == [2, 5, 8]


@pytest.mark.parametrize(
    "header", ["context;response", "\ufeffContext;Response", "context\tresponse", "CONTEXT,RESPONSE"]
)
def test_a_table_may_have_other_separators_and_capitals(tmp_path, header):
    separator = next(each for each in ";\t," if each in header)
    (tmp_path / "a.csv").write_text(f"{header}\nhi{separator}ho\n")
    [line] = read_lines(tmp_path / "a.csv")
    assert json.loads(line.raw) == {"context": [{"speaker": "user", "text": "hi"}], "response": "ho"}


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.jsonl.gz"])
@pytest.mark.parametrize("other", ["ends", "is stopped"])
@pytest.mark.parametrize("begins", [1, 20, None], ids=["before any row", "after some rows", "after it has ended"])
async def test_two_runs_on_one_output_never_write_a_row_twice(tmp_path, name, other, begins):
    """The second run waits for the service at first: what it read of the output before that would be out of date."""
    file, output = input_of(tmp_path, 40), tmp_path / name
    first, second = MockTurnScore(by_number), MockTurnScore(by_number)
    second.break_next(times=3)

    async def deliver(row):
        if row["line"] == begins:
            refused.append(await refusal_of(second, file, output))
        if other == "is stopped" and row["line"] == 30:
            raise UndeliveredError("stopped here")

    refused = []
    with suppress(StoppedError):
        await score_file(first.async_client(max_retries=0), job_of(file, output, deliver=deliver))
    assert refused == ([] if begins is None else ["is being written by another run"])
    assert len(rows_of(output)) == (40 if other == "ends" else 29)
    await score_file(second.async_client(max_retries=0), job_of(file, output))
    assert [row["line"] for row in rows_of(output)] == list(range(1, 41))


def by_number(request):
    return {"engagement": float(request.response) / 1000}


def job_of(file, output, deliver=None):
    return FileJob(file=file, output=output, scorers=None, concurrency=4, deliver=deliver)


async def refusal_of(mock, file, output):
    """What a second run says when it is begun now."""
    with pytest.raises(BadParameter) as refused:
        await score_file(mock.async_client(max_retries=0), job_of(file, output))
    return refused.value.message.split(": ", 1)[1]


class Doubling:
    """An engine that says of a response half its number, and notes what it was asked together."""

    limits, models = Limits(), []

    def __init__(self, bundles, scorers):
        self.opened, self.together, self.is_closed = (bundles, scorers), [], False
        self.answers = MockAnswers(self.value, self.limits, "local")

    def value(self, request):
        if request.response == "3":
            raise InvalidRequestError("three", "response")
        return {"engagement": float(request.response) / 2}

    def answer(self, requests):
        self.together.append(len(requests))
        return [self.answers.result(each) for each in requests]

    def close(self):
        self.is_closed = True


def test_an_engine_scores_the_lines_together_and_writes_the_same_rows(tmp_path, monkeypatch):
    opened = []
    install(monkeypatch, Entry(lambda *given: opened.append(Doubling(*given)) or opened[-1]))
    output = tmp_path / "scores.jsonl"
    words = ["--engine", "local", "--models", "a,b/", "--scorers", "engagement", "--output", output]
    result = run(MockTurnScore(), input_of(tmp_path, 5), *words)
    [engine] = opened
    assert (result.exit_code, engine.opened, engine.is_closed) == (1, (["a", "b/"], ["engagement"]), True)
    assert (sum(engine.together), max(engine.together) > 1) == (5, True)
    rows = rows_of(output)
    assert [row.get("scores", {}).get("engagement", {}).get("value") for row in rows] == [0.5, 1.0, None, 2.0, 2.5]
    assert rows[2]["error"] == {"code": "invalid_request", "message": "three", "field": "response"}
    run(MockTurnScore(), input_of(tmp_path, 5), *words, code=1)
    assert opened[1].together == []
    described = {"digest": "", "graph": "", "max_text_tokens": 1, "max_turn_tokens": 1}
    monkeypatch.setattr(Doubling, "models", [ModelDescription(scorer="quality", model="quality:1", **described)])
    refused = run(MockTurnScore(), input_of(tmp_path, 5), *words[:4], "--output", output, code=2)
    assert "those of quality are asked" in refused.stderr


def install(monkeypatch, *engines):
    def found(**wanted):
        return engines if "name" in wanted else entry_points(**wanted)

    monkeypatch.setattr("turnscore_client._command.registry.entry_points", found)


class Entry:
    def __init__(self, found):
        self.load = lambda: found


@pytest.mark.parametrize(("name", "reason"), [("ray", "ray needs turnscore-corpus"), ("rat", "unknown engine 'rat'")])
def test_an_engine_that_is_not_installed_says_what_to_install(tmp_path, monkeypatch, name, reason):
    install(monkeypatch)
    assert reason in re.sub(
        r"[\s│]+", " ", run(MockTurnScore(), input_of(tmp_path, 1), "--engine", name, code=2).stderr
    )


def test_an_output_of_other_scorers_is_refused_and_kept(tmp_path):
    file, output = input_of(tmp_path, 3), tmp_path / "scores.jsonl"
    mock = MockTurnScore({"quality": 0.5, "engagement": 0.5})
    run(mock, file, "-o", output, "--scorers", "quality", code=0)
    before = output.read_bytes()
    for others in (["--scorers", "quality,engagement"], []):
        refused = run(mock, file, "-o", output, *others)
        assert (refused.exit_code, output.read_bytes()) == (2, before)
        told = " ".join(refused.stderr.replace("│", " ").split())
        assert "holds scores of quality, and those of engagement, quality are asked" in told
    run(mock, file, "-o", output, "--scorers", "quality", code=0)


UNMET = [
    (["--fail-on", "low", "--scorers", "engagement"], "engagement gives no labels, .* with labels: quality"),
    (["--fail-under", "qualty=0.4"], "no such scorer: qualty; there are engagement, quality"),
    (["--scorers", "qualty"], "no such scorer: qualty; there are engagement, quality"),
    (["--engine", "http://a.test", "--models", "a"], "--models: requires --engine local or ray"),
]


@pytest.mark.parametrize(("words", "reason"), UNMET)
def test_a_demand_that_no_score_can_meet_is_a_usage_error(tmp_path, words, reason):
    mock = MockTurnScore({"quality": 0.5, "engagement": 0.5}, thresholds={"quality": 0.15})
    refused = run(mock, input_of(tmp_path, 1), "-o", tmp_path / "scores.jsonl", *words, code=2)
    assert re.search(reason, " ".join(refused.stderr.replace("│", " ").split()))
    assert not (tmp_path / "scores.jsonl").exists()


LINES = [
    '{"id": 1, "context": [{"speaker": "user", "text": "hi"}], "response": "hello"}',
    "this is no JSON",
    '{"id": 3, "turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]}',
]


@pytest.fixture
def file(tmp_path):
    return write_lines(tmp_path / "dialogue.jsonl", *LINES)


def lines_in(text):
    return [json.loads(line) for line in text.splitlines()]


def test_one_line_goes_out_for_each_line_in_and_a_bad_one_fails_alone(mock, file):
    result = run(mock, file)
    first, second, third = lines_in(result.stdout)
    assert (first["id"], first["line"], first["scores"]["engagement"]["value"]) == (1, 1, 0.5)
    assert (second["line"], second["error"]["code"]) == (2, "invalid_request")
    assert (third["id"], third["line"], third["dialogue"]["engagement"]["mean"]) == (3, 3, 0.5)
    assert (result.exit_code, run(mock, "-").exit_code) == (1, 0)  # the standard input is empty here


@pytest.mark.parametrize("blank", ["", "   ", "\t\r"])
def test_a_blank_line_is_skipped_and_counted_in_the_line_numbers(mock, file, blank):
    file.write_text(f"{LINES[0]}\n{blank}\n{LINES[2]}\n{blank}\n")
    result = run(mock, file)
    assert [line["line"] for line in lines_in(result.stdout)] == [1, 3]
    assert "scored 2 of 2 lines" in result.stderr
    assert result.exit_code == 0


def test_options_reach_the_client_and_the_requests(mock, file):
    mock.scores = {"engagement": 0.5, "fed": 0.1}
    arguments = ["--url", "http://there:1", "--api-key", "k", "--timeout", "3", "--scorers", "fed, engagement"]
    run(mock, file, *arguments)
    scored = [request for request in mock.requests if request.path == "/v1/score"]
    assert (scored[0].body["scorers"], scored[0].body["deadline_ms"]) == (["fed", "engagement"], 3000)
    assert (scored[0].headers["authorization"], scored[0].headers["host"]) == ("Bearer k", "there:1")


USAGE_ERRORS = [
    ["score"], ["score", "missing.jsonl"], ["score", "{file}", "--concurrency", "0"],
    ["score", "{file}", "--scorers", "fed,,"], ["score", "{file}", "--url", "nowhere"],
    ["score", "{file}", "--output", "{file}"], ["score", "{file}", "--output", "{folder}"],
    ["info", "--url", "nowhere"], ["rate"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", USAGE_ERRORS)
def test_a_usage_error_has_exit_code_two_and_touches_nothing(mock, file, tmp_path, arguments):
    before = file.read_text()
    result = run_command(mock, *(argument.format(file=file, folder=tmp_path) for argument in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert file.read_text() == before


def test_models_are_listed_as_a_table_and_as_json(mock):
    table = run_command(mock, "info")
    assert "engagement:0.0.0" in table.stdout
    as_json = run_command(mock, "info", "--json")
    assert json.loads(as_json.stdout)["models"][0]["scorer"] == "engagement"
