"""The command: output, summary, exit codes."""

import json
from unittest.mock import patch

import pytest
from turnscore_client import AsyncTurnScoreClient
from turnscore_client._command.registry import app
from turnscore_client.testing import MockTurnScore
from typer.testing import CliRunner

LINES = [
    '{"id": 1, "context": [{"speaker": "user", "text": "hi"}], "response": "hello"}',
    "this is no JSON",
    '{"id": 3, "turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]}',
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "dialogue.jsonl"
    path.write_text("\n".join(LINES) + "\n")
    return path


def run(mock: MockTurnScore, *arguments: object, typed: str = ""):
    opened = []

    def open_client(url, *, api_key, timeout_seconds, **_):
        opened.append((url, api_key, timeout_seconds))
        return AsyncTurnScoreClient(
            url, api_key=api_key, timeout_seconds=timeout_seconds, transport=mock.transport, clock=mock.clock
        )

    with patch("turnscore_client._command.score.AsyncTurnScoreClient", open_client):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result, opened


def written(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_one_line_goes_out_for_each_line_in_and_a_bad_one_fails_alone(mock, file):
    result, _ = run(mock, "score", file)
    first, second, third = written(result.stdout)
    assert (first["id"], first["line"], first["scores"]["engagement"]["value"]) == (1, 1, 0.5)
    assert (second["line"], second["error"]["code"]) == (2, "invalid_request")
    assert (third["id"], third["line"], third["dialogue"]["engagement"]["mean"]) == (3, 3, 0.5)
    assert result.exit_code == 1


@pytest.mark.parametrize("blank", ["", "   ", "\t\r"])
def test_a_blank_line_is_skipped_and_counted_in_the_line_numbers(mock, file, blank):
    file.write_text(f"{LINES[0]}\n{blank}\n{LINES[2]}\n{blank}\n")
    result, _ = run(mock, "score", file)
    assert [line["line"] for line in written(result.stdout)] == [1, 3]
    assert "scored 2 of 2 lines" in result.stderr
    assert result.exit_code == 0


def test_options_reach_the_client_and_the_requests(mock, file):
    mock.scores = {"engagement": 0.5, "fed": 0.1}
    arguments = ["--url", "http://there:1", "--api-key", "k", "--timeout", "3", "--scorers", "fed, engagement"]
    _, opened = run(mock, "score", file, *arguments)
    assert opened == [("http://there:1", "k", 3.0)]
    scored = [request for request in mock.requests if request.path == "/v1/score"]
    assert scored[0].body["scorers"] == ["fed", "engagement"]
    assert scored[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    "arguments",
    [
        ["score"],
        ["score", "missing.jsonl"],
        ["score", "{file}", "--concurrency", "0"],
        ["score", "{file}", "--scorers", "fed,,"],
        ["score", "{file}", "--url", "nowhere"],
        ["score", "{file}", "--output", "{file}"],
        ["score", "{file}", "--output", "{folder}"],
        ["info", "--url", "nowhere"],
        ["rate"],
    ],
)
def test_a_usage_error_has_exit_code_two_and_touches_nothing(mock, file, tmp_path, arguments):
    before = file.read_text()
    result, _ = run(mock, *(argument.format(file=file, folder=tmp_path) for argument in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert file.read_text() == before


def test_an_unreachable_service_is_one_sentence_and_leaves_the_output_alone(mock, file, tmp_path):
    output = tmp_path / "scores.jsonl"
    mock.break_next(times=999)
    result, _ = run(mock, "score", file, "--output", output, "--wait", 3)
    assert result.exit_code == 3
    assert result.stderr.count("turnscore: waits 3 s at most: ") == 1
    assert "turnscore: stopped: the service took no line for" in result.stderr
    assert "no answer from" in result.stderr
    assert not output.exists()
    assert 3 <= mock.clock.seconds < 12


def test_models_are_listed_as_a_table_and_as_json(mock):
    table, _ = run(mock, "info")
    assert "engagement:0.0.0" in table.stdout
    as_json, _ = run(mock, "info", "--json")
    assert json.loads(as_json.stdout)["models"][0]["scorer"] == "engagement"
