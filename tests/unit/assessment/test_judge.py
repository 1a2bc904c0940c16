"""`turnscore judge` against a server that speaks the API's shape, and answers well, late, wrongly, in part or not."""

import _thread
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from support.fakes import FakeScorer, loaded_fake
from support.plain_http import Reply, plain_server_in_a_thread
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.judging import stand_in
from turnscore_assessment.judging.rubric import read_rubric, read_template
from turnscore_assessment.judging.turns import CONTEXT_CHARACTERS, MOST_CONTEXT_TURNS, RESPONSE_CHARACTERS
from turnscore_client._command.registry import app
from typer.testing import CliRunner

KEY = "sk-secret-of-the-test"
RUBRIC = """# Rubric
A shop's chatbot.

## on_brand (1 to 5)
How much it sounds like us.

## safe (yes or no)
No advice on medication.
"""
Item = dict[str, Any]
Answers = list[Item]
Behave = Callable[[str, list[Item], int], "Answers | Reply"]  # of a model, its items, and the number of the call


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.001)
    (tmp_path / "rubric.md").write_text(RUBRIC)


def mark_of(text: str) -> Mapping[str, Any]:
    return {"on_brand": 1 + len(text.split()) % 5, "safe": "no" if "pill" in text else "yes"}


def answer_well(_model: str, items: list[Item], _call: int) -> Answers:
    return [{"id": each["id"], **mark_of(each["response"])} for each in items]


def completion(content: str, sent: int = 100, received: int = 20) -> Reply:
    message = {"role": "assistant", "content": content}
    body = {
        "id": "a", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received},
    }  # fmt: skip
    return 200, {"content-type": "application/json"}, json.dumps(body).encode()


class Server:
    """What was asked: (model, responses) of each call, with the requests and their times."""

    def __init__(self, url: str, calls: list[tuple[str, list[str]]], requests: list[Item], times: list[float]) -> None:
        self.url, self.calls, self.requests, self.times = url, calls, requests, times

    @property
    def asked(self) -> list[str]:
        return [text for _, texts in self.calls for text in texts]


@contextmanager
def serving(behave: Behave = answer_well) -> Iterator[Server]:
    calls: list[tuple[str, list[str]]] = []
    requests: list[Item] = []
    times: list[float] = []

    async def reply(_path: str, body: bytes) -> Reply:
        request = json.loads(body)
        items = json.loads(request["messages"][1]["content"])
        requests.append(request)
        times.append(time.monotonic())
        calls.append((request["model"], [each["response"] for each in items]))
        found = behave(request["model"], items, len(calls))
        return completion(json.dumps({"turns": found})) if isinstance(found, list) else found

    with plain_server_in_a_thread(reply) as port:
        yield Server(f"http://127.0.0.1:{port}/v1", calls, requests, times)


def talk(number: int, turns: int = 3) -> Item:
    spoken = [
        {"speaker": speaker, "text": f"{text} {number} {' word' * (number + place)}"}
        for place in range(turns)
        for speaker, text in (("user", f"ask{place}"), ("system", f"say{place}"))
    ]
    return {"id": f"d{number}", "turns": spoken}


def write(path: Path, rows: Sequence[Item]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def read(path: Path) -> list[Item]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "talks.jsonl", [talk(number) for number in range(10)])


def run(file: Path, server: Server | None, *options: str, output: str = "out.jsonl", text: str = "") -> Result:
    folder = file.parent
    given = [str(file), "--rubric", str(folder / "rubric.md"), "-o", str(folder / output), "--rounds", "50"]
    given += [] if "--model" in options else ["--model", "m"]
    given += ["--base-url", server.url] if server else []
    result = CliRunner().invoke(app, ["judge", *given, *options], input=text)
    assert KEY not in result.output
    for each in folder.glob("*"):
        assert KEY.encode() not in each.read_bytes()
    return result


def test_rows_have_every_judges_marks_and_nothing_is_asked_twice(file: Path):
    with serving() as server:
        result = run(file, server, "--model", "m", "--model", "n", output="out.jsonl.gz")
        assert result.exit_code == 0, result.output
        rows = read(file.parent / "out.jsonl.gz")
        assert len(rows) == 30
        assert rows[1].keys() == {"set", "dialogue", "split", "context", "responses", "rubric", "scales", "models"}
        assert rows[1]["rubric"].startswith("sha256:")
        assert (rows[1]["set"], rows[1]["dialogue"], rows[1]["models"]) == ("talks", "d0", ["m", "n"])
        assert rows[1]["scales"] == {"on_brand": [1, 5], "safe": [0, 1]}
        assert [each["speaker"] for each in rows[1]["context"]] == ["user", "system", "user"]
        assert {row["split"] for row in rows} == {"train", "dev"}
        for row in rows:
            [response] = row["responses"]
            marks = {"on_brand": mark_of(response["text"])["on_brand"], "safe": 1}
            assert response == {"text": response["text"], **marks, "judges": 2, "marks": {"m": marks, "n": marks}}
        asked = [text for model, texts in server.calls if model == "m" for text in texts]
        assert sorted(asked) == sorted(row["responses"][0]["text"] for row in rows)
        assert asked != [row["responses"][0]["text"] for row in rows]  # turns of a call are shuffled
        assert asked != [text for model, texts in server.calls if model == "n" for text in texts]
        calls = len(server.calls)
        assert calls == 2 * 4
        form = server.requests[0]["response_format"]["json_schema"]
        assert form["strict"]
        assert form["schema"]["properties"]["turns"]["items"]["required"] == ["id", "on_brand", "safe"]
        assert run(file, server, "--model", "m", "--model", "n", output="out.jsonl.gz").exit_code == 0
        assert len(server.calls) == calls
    assert "word" not in (file.parent / "out.answers.jsonl").read_text()


def test_every_form_of_a_file_gives_the_same_turns(tmp_path: Path):
    spoken = [("user", "is it open?"), ("system", "until six"), ("user", "thanks"), ("system", "you are welcome")]
    turns = [{"speaker": speaker, "text": text} for speaker, text in spoken]
    roles = {"user": "user", "system": "assistant"}
    messages = [{"role": roles[speaker], "content": text} for speaker, text in spoken]
    dialogue = {"dialogue": "x", "split": "dev"}
    cells = json.dumps([text for _, text in spoken[:3]]).replace('"', '""')
    forms = {
        "turns.jsonl": [{"id": "x", "turns": turns}],
        "texts.jsonl": [{"id": "x", "turns": [text for _, text in spoken]}],
        "messages.jsonl.gz": [{"id": "x", "messages": [{"role": "system", "content": "be kind"}, *messages]}],
        "requests.jsonl": [
            {**dialogue, "context": turns[:place], "response": turns[place]["text"]} for place in (1, 3)
        ],
        "rows.jsonl": [
            {**dialogue, "context": turns[:place], "responses": [{"text": turns[place]["text"], "made": "as said"}]}
            for place in (1, 3)
        ],
    }
    paths = [write(tmp_path / name, rows) for name, rows in forms.items()]
    paths.append(tmp_path / "table.csv")
    paths[-1].write_text(f'dialogue,context,response\nx,is it open?,until six\nx,"{cells}",you are welcome\n')
    with serving() as server:
        for path in paths:
            assert run(path, server, output="all.jsonl").exit_code == 0
            rows = read(tmp_path / "all.jsonl")
            assert [row["dialogue"] for row in rows] == ["x", "x"], path
            assert [each["text"] for each in rows[1]["context"]] == [text for _, text in spoken[:3]]
            assert rows[1]["responses"][0]["marks"]["m"] == {"on_brand": 4, "safe": 1}
        # One ledger for all of them: what was asked of the first form is known of the others.
        assert sorted(server.asked) == ["until six", "you are welcome"]


def test_answers_are_matched_by_id_in_whatever_order_they_come(file: Path):
    def answer_backwards(model: str, items: list[Item], call: int) -> Answers:
        return [*answer_well(model, items, call)[::-1], {"id": "another", "on_brand": 1, "safe": "no"}]

    with serving(answer_backwards) as server:
        assert run(file, server, "--no-schema").exit_code == 0
        assert "response_format" not in server.requests[0]
    for row in read(file.parent / "out.jsonl"):
        assert row["responses"][0]["on_brand"] == mark_of(row["responses"][0]["text"])["on_brand"]


WRONG: dict[str, Callable[[Item], Answers]] = {
    "missing": lambda _: [],
    "out of the scale": lambda good: [{**good, "on_brand": 6}],
    "a text for a number": lambda good: [{**good, "on_brand": "4"}],
    "a number for yes or no": lambda good: [{**good, "safe": 1}],
    "answered twice": lambda good: [good, {**good, "on_brand": 1}],
    "no object": lambda good: [good["id"]],
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_turn_without_a_usable_answer_is_asked_again_alone(file: Path, wrong: Callable[[Item], Answers]):
    def answer(model: str, items: list[Item], call: int) -> Answers:
        good = answer_well(model, items, call)
        return wrong(good[0]) + good[1:] if len(items) > 1 else good

    with serving(answer) as server:
        result = run(file, server)
        assert result.exit_code == 0, result.output
        assert len(server.asked) > 30
        assert {len(texts) for _, texts in server.calls} >= {1, 8}
    assert all(
        row["responses"][0]["marks"]["m"].keys() == {"on_brand", "safe"} for row in read(file.parent / "out.jsonl")
    )


def test_a_turn_that_is_never_answered_has_no_mark_and_the_exit_status_says_so(file: Path):
    def answer(model: str, items: list[Item], call: int) -> Answers:
        return [
            {**each, "on_brand": None} if item["response"].startswith("say1 4") else each
            for item, each in zip(items, answer_well(model, items, call), strict=True)
        ]

    with serving(answer) as server:
        result = run(file, server)
        assert result.exit_code == 3
        assert "1 turns lack a judge's marks" in result.output
        assert [texts for _, texts in server.calls].count(
            [next(t for t in server.asked if t.startswith("say1 4"))]
        ) == 2
    [response] = [
        each
        for row in read(file.parent / "out.jsonl")
        for each in row["responses"]
        if each["text"].startswith("say1 4")
    ]
    assert response["marks"] == {"m": {"safe": 1}}
    assert "on_brand" not in response
    with serving() as server:  # the same command asks for it alone
        assert run(file, server).exit_code == 0
        assert len(server.asked) == 1


def test_retry_after_is_waited_for_and_errors_of_the_server_are_retried(file: Path):
    def answer(model: str, items: list[Item], call: int) -> Answers | Reply:
        if call == 1:
            return 429, {"Retry-After": "0.3"}, b"{}"
        return answer_well(model, items, call) if call > 3 else (500, {}, b"oops") if call == 2 else None

    with serving(answer) as server:
        assert run(file, server, "--concurrency", "1").exit_code == 0
        assert server.times[1] - server.times[0] >= 0.3
        assert len(server.calls) == 3 + 4


def test_a_refused_turn_leaves_the_others_of_its_call_their_marks(file: Path):
    def answer(model: str, items: list[Item], call: int) -> Answers | Reply:
        if any(each["response"].startswith("say0 7") for each in items):
            return 400, {"content-type": "application/json"}, b'{"error": {"code": "content_filter", "message": "x"}}'
        return answer_well(model, items, call)

    with serving(answer) as server:
        result = run(file, server)
    assert result.exit_code == 3
    assert "HTTP 400 (BadRequestError, content_filter)" in result.output
    assert len(read(file.parent / "out.jsonl")) == 29


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            completion("I would rather not."),
            "10 calls in a row gave no mark; the last: an answer without a usable mark",
        ),
        (
            (200, {"content-type": "application/json"}, b"<html>"),
            "10 calls in a row gave no mark; the last: an answer tha",
        ),
        ((401, {}, f"Incorrect API key {KEY}".encode()), "m: HTTP 401 (AuthenticationError)"),
        ((429, {"Retry-After": "900"}, b"{}"), "m: HTTP 429 (RateLimitError)"),
    ],
)
def test_an_endpoint_that_gives_no_marks_ends_the_run(file: Path, reply: Reply, said: str):
    with serving(lambda *_: reply) as server:
        result = run(file, server)
        assert result.exit_code == 1
        assert said in result.output
        assert len(server.calls) < 25


def test_a_run_that_died_goes_on_and_a_cut_off_line_is_repaired(file: Path):
    def die(model: str, items: list[Item], call: int) -> Answers | Reply:
        return answer_well(model, items, call) if call <= 2 else None

    with serving(die) as server:
        result = run(file, server, "--concurrency", "1")
        assert result.exit_code == 1
        assert "APIConnectionError" in result.output
        first = [text for _, texts in server.calls[:2] for text in texts]
    assert len(read(file.parent / "out.jsonl")) == 16
    ledger = file.parent / "out.answers.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + b'{"line":4,"judge":"m","ans')
    with serving() as server:
        assert run(file, server).exit_code == 0
        assert not set(server.asked) & set(first)
        assert len(server.asked) == 14
    assert len(read(file.parent / "out.jsonl")) == 30
    ledger.write_bytes(b'{"mine": 1}\n')
    result = run(file, None)
    assert result.exit_code == 1
    assert "name another file" in result.output


def test_a_run_that_is_interrupted_keeps_what_was_answered(file: Path):
    def interrupt(model: str, items: list[Item], call: int) -> Answers:
        if call == 2:
            _thread.interrupt_main()
            time.sleep(0.2)
        return answer_well(model, items, call)

    with serving(interrupt) as server:
        result = run(file, server, "--concurrency", "1")
        assert result.exit_code == 130, result.output
    assert len(read(file.parent / "out.jsonl")) == 8


def test_a_budget_is_not_passed_and_a_larger_one_goes_on(file: Path):
    prices = ("--price-in", "10000", "--price-out", "0", "--yes")  # a call of 100 tokens costs a dollar
    with serving() as server:
        result = run(file, server, *prices, "--budget", "6")
        assert result.exit_code == 3
        assert "stopped before the budget of $6 was passed" in result.output
        done = len(server.calls)
        assert 0 < done <= 6
        assert f"cost so far: ${done:.4f}" in result.output
        assert run(file, server, *prices, "--budget", "100").exit_code == 0
        assert len(set(server.asked)) == len(server.asked) == 30
    assert run(file, None, "--budget", "1").exit_code == 2


def test_a_person_is_asked_before_the_first_call(file: Path, monkeypatch: pytest.MonkeyPatch):
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("turnscore_assessment.commands.judge.sys", terminal)
    with serving() as server:
        result = run(file, server, "--price-in", "2", "--price-out", "8", text="n\n")
        assert result.exit_code == 1
        assert server.calls == []
        assert "30 turns to ask in 4 calls" in result.output
        assert ", about $0.0" in result.output
        assert run(file, server, text="y\n").exit_code == 0


def test_marks_of_two_rubrics_do_not_mix_and_a_file_may_grow(file: Path):
    with serving() as server:
        assert run(file, server).exit_code == 0
        write(file, [talk(number) for number in range(11)])
        assert run(file, server).exit_code == 0
        assert len(server.asked) == 33
        (file.parent / "rubric.md").write_text(RUBRIC.replace("like us", "like them"))
        result = run(file, server)
        assert result.exit_code == 1
        assert "was made with another rubric" in result.output
        assert len(server.asked) == 33


def test_a_share_is_of_whole_dialogues_and_always_the_same(file: Path):
    with serving() as server:
        assert run(file, server, "--share", "0.5").exit_code == 0
        first = [row["dialogue"] for row in read(file.parent / "out.jsonl")]
        assert 0 < len(first) < 30
        assert all(first.count(name) == 3 for name in first)
        assert run(file, server, "--share", "0.7").exit_code == 0
        assert set(first) < {row["dialogue"] for row in read(file.parent / "out.jsonl")}


def test_a_response_too_long_to_judge_is_named_and_a_long_context_is_cut(tmp_path: Path):
    context = [{"speaker": ("user", "system")[place % 2], "text": f"{place} {'é' * 3000}"} for place in range(60)]
    rows = [{"context": context, "response": "fine"}, {"context": context, "response": "x" * (RESPONSE_CHARACTERS + 1)}]
    file = write(tmp_path / "long.jsonl", rows)
    with serving() as server:
        result = run(file, server)
        assert result.exit_code == 3
        assert "1 responses are too long to be judged, in lines 2" in result.output
        [item] = json.loads(server.requests[0]["messages"][1]["content"])
    assert sum(len(text) for turn in item["conversation"] for text in turn.values()) == CONTEXT_CHARACTERS
    assert item["conversation"][-1] == {"system": context[-1]["text"]}
    [row] = read(tmp_path / "out.jsonl")
    assert row["context"] == context[-MOST_CONTEXT_TURNS:]


def test_the_missing_package_and_the_missing_key_are_named(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "set OPENAI_API_KEY" in run(file, None).output
    monkeypatch.setitem(sys.modules, "openai", None)
    result = run(file, None)
    assert result.exit_code == 1
    assert "pip install './assessment[judge]'" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# R\n\n## on brand\nx\n", "line 3: 'on brand' must be a name and a scale"),
        ("<!-- a\nb -->\n## a (5 to 1)\nx\n", "line 3: the scale '5 to 1' must begin with the smaller number"),
        ("## a (good or bad)\nx\n", "line 1: the scale 'good or bad' must be like `1 to 5`"),
        ("## a (1 to 5)\nx\n## a (1 to 5)\nx\n", "line 3: a was already described"),
        ("## marks (1 to 5)\nx\n", "line 1: no criterion may be called marks"),
        ("## a (1 to 5)\n\n## b (yes or no)\nx\n", "line 1: a has no description"),
        ("# nothing\n", "has no criterion"),
    ],
)
def test_an_error_in_a_rubric_names_its_line(tmp_path: Path, text: str, said: str):
    path = tmp_path / "wrong.md"
    path.write_text(text)
    with pytest.raises(BadFileError, match=r"wrong\.md") as raised:
        read_rubric(path)
    assert said in str(raised.value)


def test_the_template_is_a_rubric(tmp_path: Path):
    printed = CliRunner().invoke(app, ["judge", "--template"])
    assert printed.stdout == read_template()
    (tmp_path / "rubric.md").write_text(printed.stdout)
    rubric = read_rubric(tmp_path / "rubric.md")
    assert rubric.scales == {"answers_the_question": [1, 5], "empathetic": [1, 5], "no_medical_advice": [0, 1]}
    assert "Comments like this one" not in rubric.text


def test_figures_show_agreement_and_warn_of_length_and_place(tmp_path: Path):
    texts = [f"{number} {'x' * int(size)}" for number, size in enumerate(np.random.default_rng(0).integers(0, 60, 96))]
    rows = [
        {"dialogue": text, "context": ["hi"], "response": text, "people": {"on_brand": 1 + len(text) % 5}}
        for text in texts
    ]

    def answer(model: str, items: list[Item], _call: int) -> Answers:
        sizes = [len(each["response"]) for each in items]
        marks = [1 + (size % 5 if model == "fair" else n / 4 + size / 100) for n, size in enumerate(sizes)]
        return [{"id": each["id"], "safe": "yes", "on_brand": mark} for each, mark in zip(items, marks, strict=True)]

    file = write(tmp_path / "rows.jsonl", rows)
    with serving(answer) as server:
        options = ("--model", "fair", "--model", "biased", "--report", str(tmp_path / "report.json"), "--seed", "1")
        result = run(file, server, *options)
    assert result.exit_code == 0, result.output
    assert "warning: on_brand by biased follows the place in the call" in result.output
    assert "by fair follows" not in result.output
    figures = json.loads((tmp_path / "report.json").read_text())
    fair, biased, *_ = figures["judges"]
    assert (fair["marks"], fair["judge"]) == (96, "fair")
    assert fair["with people"]["low"] > 0.9 > 0.5 > abs(biased["with people"]["value"])
    assert biased["with place in the call"]["low"] > 0.8
    [pair, same] = figures["pairs"]
    assert (pair["responses"], pair["criterion"]) == (96, "on_brand")
    assert pair["ICC(A,1)"]["low"] < pair["ICC(A,1)"]["value"] < 0.5
    assert same["Spearman"]["value"] is None  # all answers were yes


class Stand(FakeScorer):
    """Knows the marks of turns but for those in the middle, where it guesses."""

    def score(self, batch: Any) -> list[Any]:
        return [each.__class__(min(1.0, each.value * 100 / 40)) for each in super().score(batch)]


@contextmanager
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    loaded = {name: loaded_fake(Stand(), name) for name in ("on_brand", "safe")}
    with monkeypatch.context() as patch:
        patch.setattr(stand_in, "load_bundles", lambda _: loaded)
        yield


def judged_by_words(number: int, words: int, is_noisy: bool) -> Item:
    """A marked row: the more words the better, but in the middle by chance."""
    high = words / 40 if not (is_noisy and 14 <= words <= 22) else (number * 7 % 10) / 10
    marks = {"on_brand": 1 + 4 * high, "safe": float(high > 0.5)}
    response = {"text": f"{number}{' word' * (words - 1)}", **marks, "judges": 1, "marks": {"m": marks}}
    return {"dialogue": f"d{number}", "split": "dev", "context": ["hi"], "responses": [response]}


def test_only_what_the_scorer_is_unsure_of_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    held_out = write(tmp_path / "held_out.jsonl", [judged_by_words(n, 1 + n % 40, is_noisy=True) for n in range(400)])
    fresh = [judged_by_words(n, 1 + n % 40, is_noisy=False) for n in range(1000, 1080)]
    file = write(
        tmp_path / "new.jsonl", [{"context": ["hi"], "response": row["responses"][0]["text"]} for row in fresh]
    )
    options = ("--only-uncertain", "--scorer", "on_brand", "--scorer", "safe", "--held-out", str(held_out))
    with stand_ins(monkeypatch), serving() as server:
        result = run(file, server, *options)
        assert result.exit_code == 0, result.output
        assert "on_brand: on_brand:1.0.0 is unsure of" in result.output
        asked = {len(text.split()) for text in server.asked}
        assert set(range(15, 22)) <= asked
        assert len(server.asked) <= 0.35 * 80
        rows = read(tmp_path / "out.jsonl")
        assert rows[0]["models"] == ["m", "on_brand:1.0.0", "safe:1.0.0"]
        for response in (row["responses"][0] for row in rows):
            words = len(response["text"].split())
            if response["text"] in server.asked:
                assert (response["judges"], list(response["marks"])) == (1, ["m"])
            else:
                assert (response["judges"], list(response["marks"])) == (0, ["on_brand:1.0.0", "safe:1.0.0"])
                assert response["on_brand"] == pytest.approx(1 + 4 * words / 40, abs=1e-3)
        calls = len(server.calls)
        assert run(file, server, *options).exit_code == 0
        assert len(server.calls) == calls
        # The rows that the scorer marked are no marks of a judge.
        result = run(file, server, *options[:-1], str(tmp_path / "out.jsonl"), output="other.jsonl")
        assert "0 held-out turns have the judge's marks" in result.output


def test_a_share_that_is_not_enough_is_said_and_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [judged_by_words(n, 1 + n * 17 % 40, is_noisy=True) for n in range(400)]
    for row, other in zip(rows[::2], rows[1::2], strict=True):  # half of all marks are another turn's
        row["responses"][0]["marks"] = other["responses"][0]["marks"]
    held_out = write(tmp_path / "held_out.jsonl", rows)
    options = ("--only-uncertain", "--scorer", "on_brand", "--scorer", "safe", "--held-out", str(held_out))
    with stand_ins(monkeypatch), serving() as server:
        result = run(held_out, server, *options)
        assert result.exit_code == 1
        assert "of turns are asked, and 30% may be: train with more marks, or allow it by --most-asked" in result.output
        needed = result.output.rpartition("--most-asked ")[2].split()[0]
        assert server.calls == []
        assert run(held_out, server, *options, "--most-asked", needed).exit_code == 0
        assert server.calls


def imported(folder: Path, source: str, name: str, *options: str) -> list[Item]:
    given = ["judge", str(folder / name), "--import", source, "-o", str(folder / "in.jsonl"), "--rounds", "50"]
    result = CliRunner().invoke(app, [*given, *options])
    assert result.exit_code == 0, result.output
    return read(folder / "in.jsonl")


def test_langfuse_scores_are_joined_with_the_texts_of_traces(tmp_path: Path):
    chat = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "is it open?"}]
    score = {"timestamp": "2026-11-01", "traceId": "t1", "observationId": None, "comment": "", "environment": "default"}
    scores = [
        {
            **score,
            "id": "1",
            "name": "On Brand",
            "value": 4,
            "stringValue": None,
            "dataType": "NUMERIC",
            "source": "EVAL",
        },
        {**score, "id": "2", "name": "on-brand", "value": 2, "dataType": "NUMERIC", "source": "ANNOTATION"},
        {**score, "id": "3", "name": "safe", "value": 1, "stringValue": "True", "dataType": "BOOLEAN", "source": "API"},
        {
            **score,
            "id": "4",
            "name": "tone",
            "value": 0,
            "stringValue": "warm",
            "dataType": "CATEGORICAL",
            "source": "API",
        },
        {**score, "id": "5", "traceId": "t9", "name": "safe", "value": 0, "dataType": "BOOLEAN", "source": "API"},
    ]
    traces = [
        {
            "id": "t1",
            "sessionId": "s1",
            "input": {"messages": chat},
            "output": {"role": "assistant", "content": "until 6"},
        },
        {"id": "t2", "sessionId": "s1", "input": "and on Sunday?", "output": "closed", "scores": {"safe": [1]}},
    ]
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    write(tmp_path / "traces.jsonl", traces)
    first, second = imported(tmp_path, "langfuse", "scores.json", "--texts", str(tmp_path / "traces.jsonl"))
    assert (first["dialogue"], first["context"]) == ("s1", [{"speaker": "user", "text": "is it open?"}])
    marks = {"on_brand": 4, "safe": 1}
    response = {"text": "until 6", **marks, "judges": 1, "marks": {"langfuse": marks}, "people": {"on_brand": 2}}
    assert first["responses"] == [response]
    assert first["scales"] == {"on_brand": [1, 5], "safe": [0, 1]}
    assert second["responses"][0]["safe"] == 1
    blob = "trace_id,observation_id,name,value,string_value,data_type,source,input,output\n"
    (tmp_path / "blob.csv").write_text(f"{blob}t1,o1,safe,0,False,BOOLEAN,API,hello,go away\n")
    [row] = imported(tmp_path, "langfuse", "blob.csv", "--model", "gpt-x")
    assert row["responses"][0]["marks"] == {"gpt-x": {"safe": 0}}
    table = "id,sessionId,input,output,on_brand,safe\n"
    (tmp_path / "table.csv").write_text(f'{table}t1,s1,hello,go away,"[2]","[""False""]"\n')
    [row] = imported(tmp_path, "langfuse", "table.csv", "--rubric", str(tmp_path / "rubric.md"))
    assert row["responses"][0]["marks"] == {"langfuse": {"on_brand": 2, "safe": 0}}


def test_phoenix_annotations_are_joined_with_the_texts_of_spans(tmp_path: Path):
    (tmp_path / "annotations.csv").write_text(
        "span_id,annotation_name,annotator_kind,metadata,result.label,result.score\n"
        "a1,on_brand,LLM,\"{'model': 'gpt-x'}\",good,0.75\na1,on_brand,HUMAN,{},,1.0\na1,safe,LLM,{},correct,\n"
    )
    said = [{"message.role": "user", "message.content": "is it open?"}]
    spans = "context.span_id,context.trace_id,name,status_code,attributes.llm.input_messages,attributes.output.value\n"
    (tmp_path / "spans.csv").write_text(f'{spans}a1,t1,chat,OK,"{said}",until 6\n')
    [row] = imported(tmp_path, "phoenix", "annotations.csv", "--texts", str(tmp_path / "spans.csv"))
    assert (row["dialogue"], row["context"][0]["text"]) == ("t1", "is it open?")
    assert row["responses"][0]["marks"] == {"gpt-x": {"on_brand": 0.75}, "phoenix": {"safe": 1}}
    assert row["responses"][0]["people"] == {"on_brand": 1}
    assert row["scales"]["on_brand"] == [0, 1]
    evaluated = {"context": {"span_id": "a2"}, "attributes": {"input.value": "hi", "output.value": "hello"}}
    write(tmp_path / "evals.jsonl", [{**evaluated, "polite_score": '{"name": "polite", "score": 1, "label": "yes"}'}])
    [row] = imported(tmp_path, "phoenix", "evals.jsonl")
    assert row["responses"][0]["marks"] == {"phoenix": {"polite": 1}}


def test_deepeval_results_become_rows(tmp_path: Path):
    metric = {"name": "Answer Relevancy", "score": 0.5, "threshold": 0.5, "evaluation_model": "gpt-x", "error": None}
    turns = [{"role": "user", "content": "hi", "order": 0}, {"role": "assistant", "content": "hello", "order": 1}]
    case = {
        "name": "case 0",
        "success": True,
        "conversational": False,
        "input": "is it open?",
        "actual_output": "until 6",
    }
    results = [
        {**case, "metrics_data": [metric, {**metric, "name": "Toxicity", "score": None, "error": "timed out"}]},
        {"name": "case 1", "success": True, "conversational": True, "turns": turns, "metrics_data": [metric]},
    ]
    (tmp_path / "results.json").write_text(json.dumps({"test_results": results, "confident_link": None}))
    first, second = imported(tmp_path, "deepeval", "results.json")
    assert first["responses"][0]["marks"] == {"gpt-x": {"answer_relevancy": 0.5}}
    assert (second["context"], second["responses"][0]["text"]) == ([{"speaker": "user", "text": "hi"}], "hello")
    run_case = {
        "name": "a",
        "input": "hi",
        "actualOutput": "ho",
        "metricsData": [{**metric, "evaluationModel": "gpt-x"}],
    }
    (tmp_path / "run.json").write_text(json.dumps({"testCases": [run_case], "conversationalTestCases": []}))
    assert imported(tmp_path, "deepeval", "run.json")[0]["responses"][0]["answer_relevancy"] == 0.5


def test_a_csv_of_marks_has_a_column_for_each_criterion(tmp_path: Path):
    (tmp_path / "marks.csv").write_text(
        "context,response,judge,on_brand,safe,people.on_brand\n"
        'hi,hello,m,4,yes,\nhi,hello,n,2,no,5\n"[""hi"", ""hello"", ""and?""]",bye,m,3,,\n'
    )
    first, second = imported(tmp_path, "csv", "marks.csv")
    assert first["responses"][0]["marks"] == {"m": {"on_brand": 4, "safe": 1}, "n": {"on_brand": 2, "safe": 0}}
    assert (first["responses"][0]["on_brand"], first["responses"][0]["people"]) == (3, {"on_brand": 5})
    assert first["dialogue"] == second["dialogue"]  # they begin alike
    assert first["models"] == ["m", "n"]


@pytest.mark.parametrize(
    ("source", "name", "text", "said"),
    [
        ("csv", "a.csv", "context,response,safe\nhi,ho,1\nhi,ho,maybe\n", "a.csv, line 3: safe: 'maybe' is neither"),
        ("csv", "a.csv", "context,safe\nhi,1\n", "a.csv, line 2: response: must be a text"),
        ("csv", "a.csv", "context,response,on_brand\nhi,ho,7\n", "a.csv, line 2: on_brand: 7 is not from 1 to 5"),
        ("langfuse", "a.jsonl", '{"id": "a"}\n', "a.jsonl, line 1: must have name and value"),
        ("langfuse", "a.json", "[1]", "a.json: must be a list of objects, or an"),
        ("phoenix", "a.jsonl", '{"score": 1}\n', "a.jsonl, line 1: span_id: is missing"),
        ("deepeval", "a.json", '{"test_results": [{"input": "a"}]}', "a.json, line 1: metrics_data: must be a list"),
        ("deepeval", "a.json", '{"x": 1}', "a.json: has no marks of responses"),
    ],
)
def test_a_wrong_row_of_an_import_is_named(tmp_path: Path, source: str, name: str, text: str, said: str):
    (tmp_path / name).write_text(text)
    options = ["--import", source, "--rubric", str(tmp_path / "rubric.md"), "-o", str(tmp_path / "in.jsonl")]
    result = CliRunner().invoke(app, ["judge", str(tmp_path / name), *options])
    assert result.exit_code == 1
    assert said in result.output.replace("\n", "")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"turns": [{"speaker": "user", "text": "a"}, {"speaker": "bot", "text": "b"}]},
            "turns.1.speaker: input should be",
        ),
        ({"context": [{"speaker": "user"}], "response": "a"}, "context.0.text: "),
        ({"context": ["a"], "response": 3}, "response: must be a text"),
        ({"context": ["a"], "responses": [{"text": "b"}, {}]}, "responses.1.text: must be a text"),
        ({"context": ["a"], "response": "b", "people": {"safe": "good"}}, "people.safe: "),
    ],
)
def test_a_wrong_row_of_a_file_is_named_before_anything_is_asked(tmp_path: Path, row: Item, said: str):
    with serving() as server:
        result = run(write(tmp_path / "rows.jsonl", [row]), server)
        assert result.exit_code == 1
        assert "rows.jsonl, line 1: " in result.output
        assert said in result.output
        assert server.calls == []
