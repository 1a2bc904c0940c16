"""`turnscore judge` against a server that speaks the API's shape, and answers well, late, wrongly, in part or not."""

import _thread
import json
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.fakes import FakeScorer, loaded_fake
from support.files import invoke
from support.plain_http import plain_server_in_a_thread
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import read_rows, write_rows
from turnscore_assessment.judging import stand_in
from turnscore_assessment.judging.rubric import read_rubric, read_template
from turnscore_assessment.judging.turns import CONTEXT_CHARACTERS, MOST_CONTEXT_TURNS, RESPONSE_CHARACTERS
from turnscore_client._command.registry import app
from typer.testing import CliRunner

KEY = "sk-secret-of-the-test"
RUBRIC = "A shop's chatbot.\n\n## on_brand (1 to 5)\nSounds like us.\n\n## safe (yes or no)\nNo advice on medication.\n"
JSON = {"content-type": "application/json"}
Item = dict[str, Any]


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("INITIAL_RETRY_DELAY", "MAX_RETRY_DELAY"):
        monkeypatch.setattr(f"openai._base_client.{name}", 0.001)
    (tmp_path / "rubric.md").write_text(RUBRIC)


def mark_of(text):
    return 1 + len(text.split()) % 5


def answer_well(_model, items, _call):
    return [{"id": each["id"], "on_brand": mark_of(each["response"]), "safe": "yes"} for each in items]


def completion(content):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    body = {"id": "a", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    return 200, JSON, json.dumps(body).encode()


@dataclass
class Server:
    """What was asked: the model and the responses of each call, its request and its time."""

    url: str = ""
    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    requests: list[Item] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def asked(self, *models):
        return [text for model, texts in self.calls if not models or model in models for text in texts]


@contextmanager
def serving(behave=answer_well):
    server = Server()

    async def reply(_path, body):
        request = json.loads(body)
        items = json.loads(request["messages"][1]["content"])
        server.requests.append(request)
        server.times.append(time.monotonic())
        server.calls.append((request["model"], [each["response"] for each in items]))
        found = behave(request["model"], items, len(server.calls))
        return completion(json.dumps({"turns": found})) if isinstance(found, list) else found

    with plain_server_in_a_thread(reply) as port:
        server.url = f"http://127.0.0.1:{port}/v1"
        yield server


def talk(number):
    texts = [f"{who}{place} {number} {' word' * (number + place)}" for place in range(3) for who in ("ask", "say")]
    return {"id": f"d{number}", "turns": [{"speaker": "AB"[at % 2], "text": text} for at, text in enumerate(texts)]}


def write(path, rows):
    write_rows(path, rows)
    return path


def read(path):
    return [row for _, row in read_rows(path)]


@pytest.fixture
def file(tmp_path):
    """Thirty responses in ten dialogues."""
    return write(tmp_path / "talks.jsonl", [talk(number) for number in range(10)])


def run(file, server, *options, output="out.jsonl", text="", code=None):
    given = [str(file), "--rubric", str(file.parent / "rubric.md"), "-o", str(file.parent / output), "--rounds", "20"]
    given += [] if "--model" in options else ["--model", "m"]
    given += ["--base-url", server.url] if server else []
    result = CliRunner().invoke(app, ["judge", *given, *options], input=text)
    assert code in (None, result.exit_code), result.output
    assert KEY not in result.output
    assert not [each for each in file.parent.glob("*") if KEY.encode() in each.read_bytes()]
    return result


def test_rows_have_every_judges_marks_and_nothing_is_asked_twice(file):
    with serving() as server:
        both = ("--model", "m", "--model", "n")
        run(file, server, output="out.jsonl.gz", code=0)
        run(file, server, *both, output="out.jsonl.gz", code=0)
        rows = read(file.parent / "out.jsonl.gz")
        assert len(rows) == 30
        assert rows[1].keys() == {"set", "dialogue", "split", "context", "responses", "rubric", "scales", "models"}
        assert rows[1]["rubric"].startswith("sha256:")
        assert (rows[1]["set"], rows[1]["dialogue"], rows[1]["models"]) == ("talks", "d0", ["m", "n"])
        assert rows[1]["scales"] == {"on_brand": [1, 5], "safe": [0, 1]}
        assert [each["speaker"] for each in rows[1]["context"]] == ["user", "system", "user"]
        assert {row["split"] for row in rows} == {"train", "dev"}
        for [response] in (row["responses"] for row in rows):
            marks = {"on_brand": mark_of(response["text"]), "safe": 1}
            assert response == {"text": response["text"], **marks, "judges": 2, "marks": {"m": marks, "n": marks}}
        texts = [row["responses"][0]["text"] for row in rows]
        assert sorted(server.asked("m")) == sorted(server.asked("n")) == sorted(texts)
        assert len({*map(tuple, (texts, server.asked("m"), server.asked("n")))}) == 3  # turns of a call are shuffled
        assert len(server.calls) == 2 * 4
        form = server.requests[0]["response_format"]["json_schema"]
        assert form["strict"]
        assert form["schema"]["properties"]["turns"]["items"]["required"] == ["id", "on_brand", "safe"]
        run(file, server, *both, output="out.jsonl.gz", code=0)
        assert len(server.calls) == 2 * 4
    assert "word" not in (file.parent / "out.answers.jsonl").read_text()


def test_every_form_of_a_file_gives_the_same_turns(tmp_path):
    texts = ["is it open?", "until six", "thanks", "you are welcome"]
    turns = [{"speaker": ("user", "system")[at % 2], "text": text} for at, text in enumerate(texts)]
    chat = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    named = {"dialogue": "x", "split": "dev"}
    pairs = [(turns[:at], texts[at]) for at in (1, 3)]
    forms = {
        "turns.jsonl": [{"id": "x", "turns": turns}],
        "texts.jsonl": [{"id": "x", "turns": texts}],
        "messages.jsonl.gz": [{"id": "x", "messages": [{"role": "system", "content": "be kind"}, *chat]}],
        "chats.jsonl": [{**named, "messages": chat[:at], "response": texts[at]} for at in (1, 3)],
        "requests.jsonl": [{**named, "context": context, "response": text} for context, text in pairs],
        "rows.jsonl": [{**named, "context": context, "responses": [{"text": text}]} for context, text in pairs],
    }
    paths = [write(tmp_path / name, rows) for name, rows in forms.items()]
    cell = json.dumps(texts[:3]).replace('"', '""')
    paths.append(tmp_path / "table.csv")
    paths[-1].write_text(f'dialogue,context,response\nx,is it open?,until six\nx,"{cell}",you are welcome\n')
    with serving() as server:
        for path in paths:
            run(path, server, output="all.jsonl", code=0)
            rows = read(tmp_path / "all.jsonl")
            assert [row["dialogue"] for row in rows] == ["x", "x"], path
            assert [each["text"] for each in rows[1]["context"]] == texts[:3]
            assert rows[1]["responses"][0]["marks"]["m"] == {"on_brand": 4, "safe": 1}
        # One output for all of them: what was asked of the first form is known of the others.
        assert sorted(server.asked()) == ["until six", "you are welcome"]


def test_answers_are_matched_by_id_in_whatever_order_they_come(file):
    def answer_backwards(model, items, call):
        return [*answer_well(model, items, call)[::-1], {"id": "another", "on_brand": 1, "safe": "no"}]

    with serving(answer_backwards) as server:
        run(file, server, "--no-schema", code=0)
        assert "response_format" not in server.requests[0]
    for [response] in (row["responses"] for row in read(file.parent / "out.jsonl")):
        assert response["on_brand"] == mark_of(response["text"])


WRONG = {
    "missing": lambda _: [],
    "out of the scale": lambda good: [{**good, "on_brand": 6}],
    "a text for a number": lambda good: [{**good, "on_brand": "4"}],
    "a number for yes or no": lambda good: [{**good, "safe": 1}],
    "answered twice": lambda good: [good, {**good, "on_brand": 1}],
    "no object": lambda good: [good["id"]],
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_turn_without_a_usable_answer_is_asked_again_alone(file, wrong):
    def answer(model, items, call):
        good = answer_well(model, items, call)
        return wrong(good[0]) + good[1:] if len(items) > 1 else good

    with serving(answer) as server:
        run(file, server, code=0)
        assert {len(texts) for _, texts in server.calls} >= {1, 8}
    for [response] in (row["responses"] for row in read(file.parent / "out.jsonl")):
        assert response["marks"]["m"] == {"on_brand": mark_of(response["text"]), "safe": 1}


def test_a_turn_that_is_never_answered_has_no_mark_and_the_exit_status_says_so(file):
    def answer(model, items, call):
        marks = zip(items, answer_well(model, items, call), strict=True)
        return [each | ({"on_brand": None} if item["response"].startswith("say1 4") else {}) for item, each in marks]

    with serving(answer) as server:
        assert "1 turns lack a judge's marks" in run(file, server, code=3).output
        assert sum(texts[0].startswith("say1 4") for _, texts in server.calls if len(texts) == 1) == 2
    responses = [row["responses"][0] for row in read(file.parent / "out.jsonl")]
    [response] = [each for each in responses if each["text"].startswith("say1 4")]
    assert response == {"text": response["text"], "safe": 1, "judges": 1, "marks": {"m": {"safe": 1}}}
    with serving() as server:  # the same command asks for it alone
        run(file, server, code=0)
        assert len(server.asked()) == 1


def test_retry_after_is_waited_for_and_errors_of_the_server_are_retried(file):
    def answer(model, items, call):
        failures = {1: (429, {"Retry-After": "0.3"}, b"{}"), 2: (500, {}, b"oops"), 3: None}
        return failures[call] if call in failures else answer_well(model, items, call)

    with serving(answer) as server:
        run(file, server, "--concurrency", "1", code=0)
        assert server.times[1] - server.times[0] >= 0.3
        assert len(server.calls) == 3 + 4


NO_MARKS = [
    (completion("I would rather not."), "10 calls in a row gave no mark; the last: an answer without a usable"),
    ((200, JSON, b"<html>"), "10 calls in a row gave no mark; the last: an answer that is no chat completion"),
    ((401, {}, f"Incorrect API key {KEY}".encode()), "m: HTTP 401 (AuthenticationError)"),
    ((429, {"Retry-After": "900"}, b"{}"), "m: HTTP 429 (RateLimitError)"),
]


@pytest.mark.parametrize(("reply", "said"), NO_MARKS)
def test_an_endpoint_that_gives_no_marks_ends_the_run(file, reply, said):
    with serving(lambda *_: reply) as server:
        assert said in run(file, server, code=1).output
        assert len(server.calls) < 25


def test_a_run_that_died_goes_on_and_a_cut_off_line_is_repaired(file):
    with serving(lambda *asked: answer_well(*asked) if asked[2] <= 2 else None) as server:
        assert "APIConnectionError" in run(file, server, "--concurrency", "1", code=1).output
        first = {text for _, texts in server.calls[:2] for text in texts}
    assert len(read(file.parent / "out.jsonl")) == 16
    ledger = file.parent / "out.answers.jsonl"
    ledger.write_bytes(ledger.read_bytes() + b'{"line":4,"judge":"m","ans')
    with serving() as server:
        run(file, server, code=0)
        assert len(server.asked()) == len({*server.asked()} - first) == 14
    assert len(read(file.parent / "out.jsonl")) == 30
    ledger.write_bytes(b'{"mine": 1}\n')
    assert "name another file" in run(file, None, code=1).output


def test_a_run_that_is_interrupted_keeps_what_was_answered(file):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background ignore it

    def interrupt(model, items, call):
        if call == 2:
            _thread.interrupt_main()
            time.sleep(0.2)
        return answer_well(model, items, call)

    with serving(interrupt) as server:
        assert run(file, server, "--concurrency", "1").exit_code == 130
    assert len(read(file.parent / "out.jsonl")) == 8


def test_a_budget_is_not_passed_and_a_larger_one_goes_on(file):
    prices = ("--price-in", "10000", "--price-out", "0", "--yes")  # a call of 100 tokens costs a dollar
    with serving() as server:
        result = run(file, server, *prices, "--budget", "6", code=3)
        assert "stopped before the budget of $6 was passed" in result.output
        done = len(server.calls)
        assert 0 < done <= 6
        assert f"cost so far: ${done:.4f}" in result.output
        run(file, server, *prices, "--budget", "100", code=0)
        assert len({*server.asked()}) == len(server.asked()) == 30
        calls = len(server.calls)
        run(file, server, "--model", "n", *prices, "--budget", "9", code=3)
        assert len(server.calls) == calls, "what the earlier judge cost counts"
    run(file, None, "--budget", "1", code=2)


def test_a_budget_needs_the_price_of_an_earlier_judge(file):
    prices = ("--price-in", "10000", "--price-out", "0", "--yes")  # a call of 100 tokens costs a dollar
    with serving() as server:
        run(file, server, code=0)
        calls = len(server.calls)
        refused = run(file, server, "--model", "n", *prices, "--budget", "6", code=1)
        assert "--budget needs the price of m" in refused.output
        assert len(server.calls) == calls


def test_turns_that_are_always_refused_do_not_stop_later_runs_and_are_asked_last(file):
    def answer(model, items, call):
        refused = any(" 1 " in each["response"] or " 8 " in each["response"] for each in items)
        filtered = (400, JSON, b'{"error": {"code": "content_filter", "message": "x"}}')
        return filtered if refused else answer_well(model, items, call)

    alone = ("--turns-per-call", "1", "--concurrency", "1")
    with serving(answer) as server:
        result = run(file, server, code=3)
        assert "HTTP 400 (BadRequestError, content_filter)" in result.output
        assert len(read(file.parent / "out.jsonl")) == 24
        write(file, [talk(number) for number in (*range(10), 11)])
        server.calls.clear()
        result = run(file, server, *alone)
        assert (result.exit_code, "in a row" in result.output) == (3, False)
        assert all(" 11 " in text for text in server.asked()[:3])
        assert len(server.calls) == 3 + 6 * 3
    assert len(read(file.parent / "out.jsonl")) == 27


def test_a_persons_mark_of_zero_is_kept(tmp_path):
    row = {"context": ["hi"], "response": "a", "people.safe": 0, "people.on_brand": ""}
    with serving() as server:
        run(write(tmp_path / "rows.jsonl", [row]), server, code=0)
    assert read(tmp_path / "out.jsonl")[0]["responses"][0]["people"] == {"safe": 0}


def test_a_password_in_the_endpoints_address_is_not_printed(file):
    result = run(file, None, "--base-url", "http://user:hidden@127.0.0.1:9/secret/v1")
    assert "no answer from http://127.0.0.1:9 (APIConnectionError)" in result.output
    assert "hidden" not in result.output
    assert "secret" not in result.output


def test_rows_that_are_judged_again_by_another_rubric_keep_no_earlier_mark(tmp_path):
    earlier = {"on_brand": 3.7, "judges": 0, "marks": {"on_brand:1.0.0": {"on_brand": 3.7}}, "made": "here"}
    file = write(tmp_path / "rows.jsonl", [{"context": ["hi"], "responses": [{"text": "a b", **earlier}]}])
    with serving() as server:
        (tmp_path / "rubric.md").write_text("## safe (yes or no)\nIs safe.\n")
        run(file, server, code=0)
    [row] = read(tmp_path / "out.jsonl")
    assert row["responses"] == [{"text": "a b", "made": "here", "safe": 1, "judges": 1, "marks": {"m": {"safe": 1}}}]


def test_a_person_is_asked_before_the_first_call(file, monkeypatch):
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("turnscore_assessment.commands.judge.sys", terminal)
    with serving() as server:
        result = run(file, server, "--price-in", "2", "--price-out", "8", text="n\n")
        assert (result.exit_code, server.calls) == (1, [])
        assert "30 turns to ask in 4 calls" in result.output
        assert ", about $0.0" in result.output
        run(file, server, text="y\n", code=0)


def test_marks_of_two_rubrics_do_not_mix_and_a_file_may_grow(file):
    with serving() as server:
        run(file, server, code=0)
        write(file, [talk(number) for number in range(11)])
        run(file, server, code=0)
        assert len(server.asked()) == 33
        (file.parent / "rubric.md").write_text(RUBRIC.replace("like us", "like them"))
        assert "was made with another rubric" in run(file, server, code=1).output
        assert len(server.asked()) == 33


def test_a_share_is_of_whole_dialogues_and_always_the_same(file):
    with serving() as server:
        run(file, server, "--share", "0.5", code=0)
        first = [row["dialogue"] for row in read(file.parent / "out.jsonl")]
        assert 0 < len(first) < 30
        assert all(first.count(name) == 3 for name in first)
        run(file, server, "--share", "0.7", code=0)
        assert {*first} < {row["dialogue"] for row in read(file.parent / "out.jsonl")}


def test_a_response_too_long_to_judge_is_named_and_a_long_context_is_cut(tmp_path):
    context = [{"speaker": ("user", "system")[place % 2], "text": f"{place} {'é' * 3000}"} for place in range(60)]
    texts = ["fine", "x" * (RESPONSE_CHARACTERS + 1)]
    with serving() as server:
        file = write(tmp_path / "long.jsonl", [{"context": context, "response": text} for text in texts])
        assert "1 responses are too long to be judged, in lines 2" in run(file, server, code=3).output
        [item] = json.loads(server.requests[0]["messages"][1]["content"])
    assert sum(len(text) for turn in item["conversation"] for text in turn.values()) == CONTEXT_CHARACTERS
    assert item["conversation"][-1] == {"system": context[-1]["text"]}
    [row] = read(tmp_path / "out.jsonl")
    assert row["context"] == context[-MOST_CONTEXT_TURNS:]


def test_the_missing_package_and_the_missing_key_are_named(file, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    assert "set OPENAI_API_KEY" in run(file, None).output
    assert not [*file.parent.glob("out*")]
    monkeypatch.setitem(sys.modules, "openai", None)
    assert "pip install './assessment[judge]'" in run(file, None, code=1).output


WRONG_RUBRICS = [
    ("# R\n\n## on brand\nx\n", "line 3: 'on brand' must be a name and a scale"),
    ("<!-- a\nb -->\n## a (5 to 1)\nx\n", "line 3: the scale of a must begin with the smaller number"),
    ("## a (good or bad)\nx\n", "line 1: 'a (good or bad)' must be a name and a scale"),
    ("## a (1 to 5)\nx\n## a (1 to 5)\nx\n", "line 3: a was already described"),
    ("## marks (1 to 5)\nx\n", "line 1: no criterion may be called marks"),
    ("## a (1 to 5)\n\n## b (yes or no)\nx\n", "line 1: a has no description"),
    ("# nothing\n", "has no criterion"),
]


@pytest.mark.parametrize(("text", "said"), WRONG_RUBRICS)
def test_an_error_in_a_rubric_names_its_line(tmp_path, text, said):
    (tmp_path / "wrong.md").write_text(text)
    with pytest.raises(BadFileError) as raised:
        read_rubric(tmp_path / "wrong.md")
    assert said in str(raised.value)


def test_the_template_is_a_rubric(tmp_path):
    printed = CliRunner().invoke(app, ["judge", "--template"]).stdout
    assert printed == read_template()
    (tmp_path / "rubric.md").write_text(printed)
    rubric = read_rubric(tmp_path / "rubric.md")
    assert rubric.scales == {"answers_the_question": [1, 5], "empathetic": [1, 5], "no_medical_advice": [0, 1]}
    assert "Comments like this one" not in rubric.text


def test_figures_show_agreement_and_warn_of_length_and_place(tmp_path):
    texts = [f"{number} {'x' * int(size)}" for number, size in enumerate(np.random.default_rng(0).integers(0, 60, 96))]
    people = [{"on_brand": 1 + len(text) % 5} for text in texts]
    rows = [{"id": text, "response": text, "people": mark} for text, mark in zip(texts, people, strict=True)]

    def answer(model, items, _call):
        sizes = [len(each["response"]) for each in items]
        marks = [1 + (size % 5 if model == "fair" else n / 4 + size / 100) for n, size in enumerate(sizes)]
        return [{"id": each["id"], "safe": "yes", "on_brand": mark} for each, mark in zip(items, marks, strict=True)]

    file, report = write(tmp_path / "rows.jsonl", rows), tmp_path / "report.json"
    with serving(answer) as server:
        result = run(file, server, "--model", "fair", "--model", "biased", "--report", str(report), "--seed", "1")
    assert "warning: on_brand by biased follows the place in the call" in result.output
    assert "warning: on_brand by biased follows the response's length" in result.output
    assert "by fair follows" not in result.output
    figures = json.loads(report.read_text())
    fair, biased, *_ = figures["judges"]
    assert (fair["marks"], fair["judge"]) == (96, "fair")
    assert fair["with people"]["low"] > 0.9 > 0.5 > abs(biased["with people"]["value"])
    assert biased["with place in the call"]["low"] > 0.8
    [pair, same] = figures["pairs"]
    assert (pair["responses"], pair["criterion"]) == (96, "on_brand")
    assert pair["ICC(A,1)"]["low"] < pair["ICC(A,1)"]["value"] < 0.5
    assert same["Spearman"]["value"] is None  # all answers were yes


class Stand(FakeScorer):
    """The more words of forty, the better."""

    def score(self, batch):
        return [each.__class__(min(1.0, each.value * 100 / 40)) for each in super().score(batch)]


def judged_by_words(number, words):
    """A marked row: as the scorer says, but by chance where the words are some twenty."""
    high = (number * 7 % 10) / 10 if 14 <= words <= 22 else words / 40
    marks = {"on_brand": 1 + 4 * high, "safe": float(high > 0.5)}
    response = {"text": f"{number}{' word' * (words - 1)}", **marks, "judges": 1, "marks": {"m": marks}}
    return {"dialogue": f"d{number}", "split": "dev", "context": ["hi"], "responses": [response]}


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """The options with which two scorers answer; the held-out rows are to be written."""
    loaded = {name: loaded_fake(Stand(), name) for name in ("on_brand", "safe")}
    monkeypatch.setattr(stand_in, "load_bundles", lambda names: {name: loaded[name] for name in names})
    monkeypatch.setattr(stand_in, "_ROUNDS", 20)
    scorers = ("--only-uncertain", "--bundle", "on_brand", "--bundle", "safe")
    return (*scorers, "--held-out", str(tmp_path / "held_out.jsonl"))


def test_only_what_the_scorer_is_unsure_of_is_asked(tmp_path, stand_ins):
    write(tmp_path / "held_out.jsonl", [judged_by_words(n, 1 + n % 40) for n in range(240)])
    texts = [judged_by_words(n, 1 + n % 40)["responses"][0]["text"] for n in range(1000, 1080)]
    file = write(tmp_path / "new.jsonl", [{"context": ["hi"], "response": text} for text in texts])
    with serving() as server:
        result = run(file, server, *stand_ins, code=0)
        assert "on_brand: on_brand:1.0.0 is unsure of" in result.output
        assert {len(text.split()) for text in server.asked()} >= {*range(15, 22)}
        assert len(server.asked()) <= 0.35 * 80
        rows = read(tmp_path / "out.jsonl")
        assert rows[0]["models"] == ["m", "on_brand:1.0.0", "safe:1.0.0"]
        for [response] in (row["responses"] for row in rows):
            by_judge = response["text"] in server.asked()
            names = ["m"] if by_judge else ["on_brand:1.0.0", "safe:1.0.0"]
            assert (response["judges"], [*response["marks"]]) == (by_judge, names)
            value = mark_of(response["text"]) if by_judge else 1 + 4 * len(response["text"].split()) / 40
            assert response["on_brand"] == pytest.approx(value, abs=1e-3)
        # The rows that the scorer marked are no marks of a judge.
        result = run(file, server, *stand_ins[:-1], str(tmp_path / "out.jsonl"), output="other.jsonl")
        assert "0 held-out turns have the judge's marks" in result.output
        result = run(file, server, *stand_ins[:3], *stand_ins[-2:])
        assert "no --bundle answers safe; those given answer on_brand" in result.output
        assert run(file, server).exit_code == 0  # asks for the rest
        assert len({*server.asked()}) == len(server.asked()) == 80


def test_a_share_that_is_not_enough_is_said_and_nothing_is_asked(tmp_path, stand_ins):
    rows = [judged_by_words(n, 1 + n * 17 % 40) for n in range(240)]
    for row, other in zip(rows[::2], rows[1::2], strict=True):  # half of all marks are another turn's
        row["responses"][0]["marks"] = other["responses"][0]["marks"]
    held_out = write(tmp_path / "held_out.jsonl", rows)
    with serving() as server:
        result = run(held_out, server, *stand_ins)
        assert (result.exit_code, server.calls) == (1, [])
        needed = result.output.rpartition("30% may be: train with more marks, or allow it by --most-asked ")[2]
        run(held_out, server, *stand_ins, "--most-asked", needed.split()[0], code=0)
        assert server.calls


def test_people_are_what_agreement_is_measured_with(tmp_path, stand_ins):
    rows = [judged_by_words(n, 1 + n % 40) for n in range(240)]
    for row in rows:
        row["responses"][0]["people"] = {"on_brand": 3 if row["dialogue"] < "d2" else 4, "safe": 1}
    file = write(tmp_path / "held_out.jsonl", rows)
    assert "agreement with people is " in run(file, None, *stand_ins, "--most-asked", "0").output


def imported(folder, source, name, *options):
    given = ["judge", str(folder / name), "--import", source, "-o", str(folder / "in.jsonl"), "--rounds", "50"]
    invoke(app, [*given, *options])
    return read(folder / "in.jsonl")


def test_langfuse_scores_are_joined_with_the_texts_of_traces(tmp_path):
    (tmp_path / "scores.json").write_text("""[
        {"id": "1", "traceId": "t1", "name": "On Brand", "value": 4, "dataType": "NUMERIC", "source": "EVAL"},
        {"id": "2", "traceId": "t1", "name": "on-brand", "value": 2, "dataType": "NUMERIC", "source": "ANNOTATION"},
        {"traceId": "t1", "name": "safe", "value": 1, "stringValue": "True", "dataType": "BOOLEAN", "source": "API"},
        {"traceId": "t1", "name": "tone", "value": 0, "stringValue": "warm", "dataType": "CATEGORICAL"},
        {"traceId": "t9", "name": "safe", "value": 0, "dataType": "BOOLEAN", "source": "API"}]""")
    chat = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "is it open?"}]
    output = {"role": "assistant", "content": "until 6"}
    traces = [
        {"id": "t1", "sessionId": "s1", "input": {"messages": chat}, "output": output, "tags": ["1"]},
        {"id": "t2", "sessionId": "s1", "input": "[and on Sunday?", "output": '{"a": 1}', "scores": {"safe": [1]}},
    ]
    write(tmp_path / "traces.jsonl", traces)
    first, second = imported(tmp_path, "langfuse", "scores.json", "--texts", str(tmp_path / "traces.jsonl"))
    assert (first["dialogue"], first["context"]) == ("s1", [{"speaker": "user", "text": "is it open?"}])
    marks = {"on_brand": 4, "safe": 1}
    people = {"people": {"on_brand": 2}}
    assert first["responses"] == [{"text": "until 6", **marks, "judges": 1, "marks": {"langfuse": marks}, **people}]
    assert first["scales"] == {"on_brand": [1, 5], "safe": [0, 1]}
    assert (second["responses"][0]["text"], second["responses"][0]["safe"]) == ('{"a": 1}', 1)
    assert second["context"][0]["text"] == "[and on Sunday?"
    blob = "trace_id,observation_id,name,value,string_value,data_type,source,input,output\n"
    (tmp_path / "blob.csv").write_text(f"{blob}t1,o1,safe,0,False,BOOLEAN,API,hello,go away\n")
    [row] = imported(tmp_path, "langfuse", "blob.csv", "--model", "gpt-x")
    assert row["responses"][0]["marks"] == {"gpt-x": {"safe": 0}}
    table = 'id,sessionId,input,output,on_brand,safe\nt1,s1,hello,go away,"[2]","[""False""]"\n'
    (tmp_path / "table.csv").write_text(table)
    [row] = imported(tmp_path, "langfuse", "table.csv", "--rubric", str(tmp_path / "rubric.md"))
    assert row["responses"][0]["marks"] == {"langfuse": {"on_brand": 2, "safe": 0}}


def test_traces_without_a_session_are_one_dialogue_where_they_begin_alike_and_unknown_roles_are_counted(tmp_path):
    talk = [{"role": "ai", "content": "hi, I am Bo"}, {"role": "human", "content": "is it open?"}]
    more = [*talk, {"role": "model", "content": "until 6"}, {"role": "user", "content": "thanks"}]
    other = [talk[0], {"role": "human", "content": "my order is late"}]
    odd = [*talk, {"role": "narrator", "content": "a door opens"}]
    scored = {"output": "well", "scores": {"safe": [1]}}
    traces = [{"id": str(n), "input": {"messages": each}, **scored} for n, each in enumerate((talk, more, other, odd))]
    write(tmp_path / "traces.jsonl", traces)
    given = ["judge", str(tmp_path / "traces.jsonl"), "--import", "langfuse", "-o", str(tmp_path / "in.jsonl")]
    result = CliRunner().invoke(app, given)
    assert "left out 1 marks: a message of the context has an unknown role" in result.output
    first, second, third = read(tmp_path / "in.jsonl")
    assert first["dialogue"] == second["dialogue"] != third["dialogue"]
    assert [each["speaker"] for each in second["context"]] == ["system", "user", "system", "user"]


def test_phoenix_annotations_are_joined_with_the_texts_of_spans(tmp_path):
    (tmp_path / "annotations.csv").write_text(
        "span_id,annotation_name,annotator_kind,metadata,result.label,result.score\n"
        "a1,on_brand,LLM,{'model': 'gpt-x'},good,0.75\na1,on_brand,HUMAN,{},,1.0\na1,safe,LLM,{},correct,\n"
    )
    (tmp_path / "spans.csv").write_text(
        "context.span_id,attributes.session.id,name,status_code,attributes.llm.input_messages,attributes.output.value\n"
        "a1,t1,chat,OK,\"[{'message.role': 'user', 'message.content': 'is it open?'}]\",until 6\n"
    )
    [row] = imported(tmp_path, "phoenix", "annotations.csv", "--texts", str(tmp_path / "spans.csv"))
    assert (row["dialogue"], row["context"][0]["text"]) == ("t1", "is it open?")
    assert row["responses"][0]["marks"] == {"gpt-x": {"on_brand": 0.75}, "phoenix": {"safe": 1}}
    assert row["responses"][0]["people"] == {"on_brand": 1}
    evaluated = {"context": {"span_id": "a2"}, "attributes": {"input.value": "hi", "output.value": "hello"}}
    write(tmp_path / "evals.jsonl", [{**evaluated, "polite_score": '{"name": "polite", "score": 1, "label": "yes"}'}])
    [row] = imported(tmp_path, "phoenix", "evals.jsonl")
    assert row["responses"][0]["marks"] == {"phoenix": {"polite": 1}}


def test_deepeval_results_become_rows(tmp_path):
    metric = {"name": "Answer Relevancy", "score": 0.5, "threshold": 0.5, "evaluation_model": "gpt-x", "error": None}
    turns = [{"role": "user", "content": "hi", "order": 0}, {"role": "assistant", "content": "hello", "order": 1}]
    failed = {**metric, "name": "Toxicity", "score": None, "error": "timed out"}
    results = [
        {"name": "case 0", "input": "is it open?", "actual_output": "until 6", "metrics_data": [metric, failed]},
        {"name": "case 1", "conversational": True, "turns": turns, "metrics_data": [metric]},
    ]
    (tmp_path / "results.json").write_text(json.dumps({"test_results": results, "confident_link": None}))
    first, second = imported(tmp_path, "deepeval", "results.json")
    assert first["responses"][0]["marks"] == {"gpt-x": {"answer_relevancy": 0.5}}
    assert (second["context"], second["responses"][0]["text"]) == ([{"speaker": "user", "text": "hi"}], "hello")
    case = {"name": "a", "input": "hi", "actualOutput": "ho", "metricsData": [metric]}
    (tmp_path / "run.json").write_text(json.dumps({"testCases": [case], "conversationalTestCases": []}))
    assert imported(tmp_path, "deepeval", "run.json")[0]["responses"][0]["answer_relevancy"] == 0.5


def test_a_csv_of_marks_has_a_column_for_each_criterion(tmp_path):
    (tmp_path / "marks.csv").write_text(
        "context,response,judge,on_brand,safe,people.on_brand\n"
        'hi,hello,m,4,yes,\nhi,hello,n,2,no,5\n"[""hi"", ""hello"", ""and?""]",bye,m,3,,\n'
    )
    first, second = imported(tmp_path, "csv", "marks.csv")
    assert first["responses"][0]["marks"] == {"m": {"on_brand": 4, "safe": 1}, "n": {"on_brand": 2, "safe": 0}}
    assert (first["responses"][0]["on_brand"], first["responses"][0]["people"]) == (3, {"on_brand": 5})
    assert first["dialogue"] == second["dialogue"]  # they begin alike
    assert first["models"] == ["m", "n"]


WRONG_IMPORTS = [
    ("csv", "a.csv", "context,response,safe\nhi,ho,1\nhi,ho,maybe\n", "a.csv, line 3: safe: 'maybe' is neither"),
    ("csv", "a.csv", "context,safe\nhi,1\n", "a.csv, line 2: response: must be a text"),
    ("csv", "a.csv", "context,response,on_brand\nhi,ho,7\n", "a.csv, line 2: on_brand: 7 is not from 1 to 5"),
    ("langfuse", "a.jsonl", '{"id": "a"}\n', "a.jsonl, line 1: must have name and value"),
    ("langfuse", "a.json", "[1]", "a.json: must be a list of objects, or an object with one"),
    ("phoenix", "a.jsonl", '{"score": 1}\n', "a.jsonl, line 1: span_id: is missing"),
    ("deepeval", "a.json", '{"test_results": [{"input": "a"}]}', "a.json, line 1: metrics_data: must be a list"),
    ("deepeval", "a.json", '{"x": 1}', "a.json: has no marks of responses"),
]


@pytest.mark.parametrize(("source", "name", "text", "said"), WRONG_IMPORTS)
def test_a_wrong_row_of_an_import_is_named(tmp_path, source, name, text, said):
    (tmp_path / name).write_text(text)
    options = ["--import", source, "--rubric", str(tmp_path / "rubric.md"), "-o", str(tmp_path / "in.jsonl")]
    result = CliRunner().invoke(app, ["judge", str(tmp_path / name), *options])
    assert (result.exit_code, said in result.output) == (1, True), result.output


WRONG_ROWS = [
    ({"turns": ["a", {"speaker": "bot", "text": "b"}]}, "turns.1.speaker: input should be"),
    ({"context": [{"speaker": "user"}], "response": "a"}, "context.0.text: "),
    ({"context": "[1", "response": "a"}, "context: invalid JSON"),
    ({"context": ["a"], "response": 3}, "response: input should be a valid string"),
    ({"context": ["a"], "responses": [{"text": "b"}, {}]}, "responses.1.text: input should be a valid string"),
    ({"context": ["a"], "response": "b", "people": {"safe": "good"}}, "people.safe: "),
]


@pytest.mark.parametrize(("row", "said"), WRONG_ROWS)
def test_a_wrong_row_of_a_file_is_named_before_anything_is_asked(tmp_path, row, said):
    with serving() as server:
        result = run(write(tmp_path / "rows.jsonl", [row]), server)
        assert (result.exit_code, server.calls) == (1, [])
        assert f"rows.jsonl, line 1: {said}" in result.output


def test_marks_of_one_response_are_averaged_and_counted(tmp_path):
    (tmp_path / "a.csv").write_text("context;response;safe\nhi;ho;1\nhi;ho;0\nhi;hey;1\n")
    given = ["judge", str(tmp_path / "a.csv"), "--import", "csv", "-o", str(tmp_path / "in.jsonl"), "--rounds", "50"]
    result = invoke(app, given)
    assert "averaged 1 marks with another of the same response, judge and criterion" in result.output
    assert [row["responses"][0]["safe"] for row in read(tmp_path / "in.jsonl")] == [0.5, 1]
