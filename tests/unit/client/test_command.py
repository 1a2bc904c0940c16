"""The command: output, summary, exit codes."""

import json

import pytest
from support.files import run_command

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


def written(text):
    return [json.loads(line) for line in text.splitlines()]


def test_one_line_goes_out_for_each_line_in_and_a_bad_one_fails_alone(mock, file):
    result = run_command(mock, "score", file)
    first, second, third = written(result.stdout)
    assert (first["id"], first["line"], first["scores"]["engagement"]["value"]) == (1, 1, 0.5)
    assert (second["line"], second["error"]["code"]) == (2, "invalid_request")
    assert (third["id"], third["line"], third["dialogue"]["engagement"]["mean"]) == (3, 3, 0.5)
    assert result.exit_code == 1


@pytest.mark.parametrize("blank", ["", "   ", "\t\r"])
def test_a_blank_line_is_skipped_and_counted_in_the_line_numbers(mock, file, blank):
    file.write_text(f"{LINES[0]}\n{blank}\n{LINES[2]}\n{blank}\n")
    result = run_command(mock, "score", file)
    assert [line["line"] for line in written(result.stdout)] == [1, 3]
    assert "scored 2 of 2 lines" in result.stderr
    assert result.exit_code == 0


def test_options_reach_the_client_and_the_requests(mock, file):
    mock.scores = {"engagement": 0.5, "fed": 0.1}
    arguments = ["--url", "http://there:1", "--api-key", "k", "--timeout", "3", "--scorers", "fed, engagement"]
    run_command(mock, "score", file, *arguments)
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
