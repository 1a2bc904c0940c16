"""The endurance run's own judgement: made-up runs break each promise, and an honest one none."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from turnscore_load import callers
from turnscore_load.answers import CallAnswer
from turnscore_load.callers import (
    CORPUS,
    FILE,
    METERED,
    PLAIN,
    RAW,
    STRANGER,
    judge_corpus,
    judge_file,
    judge_raw,
    judge_said,
    judge_talk,
)
from turnscore_load.oracle import Ask, Asker, Ledger, Oracle, Place, Verdict
from turnscore_load.scenarios import endurance
from turnscore_load.scenarios.endurance import (
    Endurance,
    check_lines,
    count_requests,
    cut_broken_line,
    find_failures,
    read_lines,
)

TURNS = [{"speaker": speaker, "text": text} for speaker, text in zip(["user", "system"] * 2, "abcd", strict=True)]
SCORERS = ("engagement", "quality")
PLACES = [Place(0, 1), Place(0, 3)]


def value_of(place: Place, model: str) -> tuple[float, float]:
    return place.turn / 10 + 0.05 * (model == "engagement:2"), 10.0 * place.turn


ORACLE = Oracle(
    [TURNS],
    {
        model: {place: value_of(place, model) for place in [*PLACES, Place(0, 0)]}
        for model in ("engagement:1", "engagement:2", "quality:1", "fed:1")
    },
)
TURN, DIALOGUE = Ask("score", PLACES[:1], SCORERS), Ask("score_dialogue", PLACES, SCORERS)
BATCH = Ask("score_batch", PLACES, SCORERS)


def scores_of(place: Place, engagement: str = "engagement:1", moved: float = 0.0) -> dict[str, Any]:
    found = {}
    for model in (engagement, "quality:1"):
        value, percentile = value_of(place, model)
        scored = {"value": value + moved, "percentile": percentile, "model": model, "cached": model == "quality:1"}
        found[model.partition(":")[0]] = scored
    return {"scores": found, "errors": {}, "index": place.turn}


def partly_refused(place: Place, **more: Any) -> dict[str, Any]:
    reply = scores_of(place, **more)
    del reply["scores"]["engagement"]
    return {**reply, "errors": {"engagement": {"code": "overloaded"}}}


def dialogue_reply(**first: Any) -> dict[str, Any]:
    turns = [scores_of(PLACES[0], **first), scores_of(PLACES[1])]
    means = {each: {"mean": sum(turn["scores"][each]["value"] for turn in turns) / 2, "turns": 2} for each in SCORERS}
    return {"turns": turns, "dialogue": means}


@pytest.mark.parametrize(
    ("ask", "reply", "outcome"),
    [
        (TURN, scores_of(PLACES[0]), "answered"),
        (TURN, scores_of(PLACES[0], "engagement:2"), "answered"),
        (TURN, scores_of(PLACES[0], moved=2e-6), "wrong"),
        (TURN, scores_of(PLACES[1]), "wrong"),
        (TURN, scores_of(PLACES[0], "engagement:3"), "wrong"),
        (TURN, {"scores": {"engagement": scores_of(PLACES[0])["scores"]["engagement"]}, "errors": {}}, "lost"),
        (TURN, {"scores": {}, "errors": {each: {"code": "overloaded"} for each in SCORERS}}, "refused"),
        (TURN, {"scores": {}, "errors": {"engagement": {"code": "overloaded"}}}, "lost"),
        (TURN, partly_refused(PLACES[0]), "refused"),
        (TURN, partly_refused(PLACES[0], moved=0.1), "wrong"),
        (TURN, {"error": {"code": "not_ready"}}, "refused"),
        (TURN, {"score": 1}, "unclear"),
        (TURN, [], "unclear"),
        (BATCH, {"results": [scores_of(each) for each in PLACES]}, "answered"),
        (BATCH, {"results": [scores_of(PLACES[0])]}, "lost"),
        (BATCH, {"results": [scores_of(PLACES[0]), {"error": {"code": "overloaded"}}]}, "refused"),
        (BATCH, {"results": [{"error": {"code": "overloaded"}}, scores_of(PLACES[0])]}, "wrong"),
        (DIALOGUE, dialogue_reply(), "answered"),
        (DIALOGUE, dialogue_reply(engagement="engagement:2"), "answered"),
        (DIALOGUE, {**dialogue_reply(), "turns": dialogue_reply()["turns"][:1]}, "lost"),
        (DIALOGUE, {**dialogue_reply(), "turns": 2 * dialogue_reply()["turns"]}, "wrong"),
        *[
            (DIALOGUE, {**dialogue_reply(), "dialogue": {each: {"mean": mean} for each in SCORERS}}, "wrong")
            for mean in (0.3, float("nan"))
        ],
    ],
)
def test_a_wrong_value_and_an_answer_with_less_than_was_asked_are_found(ask: Ask, reply: Any, outcome: str):
    assert ORACLE.judge(ask, reply).outcome == outcome


def test_a_reply_with_two_errors_names_both():
    errors = {name: {"code": code} for name, code in zip(SCORERS, ("overloaded", "internal"), strict=True)}
    assert ORACLE.judge(TURN, {"scores": {}, "errors": errors}) == Verdict("refused", "internal, overloaded")


def test_a_percentile_that_is_not_the_values_is_wrong():
    reply = scores_of(PLACES[0])
    reply["scores"]["quality"]["percentile"] += 0.02
    assert ORACLE.judge(TURN, reply).outcome == "wrong"


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        ("200", json.dumps(scores_of(PLACES[0])), "answered"),
        ("503", "<html>", "failed"),
        ("503", '{"error": {"code": "not_ready"}}', "refused"),
        ("200", '{"error": {"code": "not_ready"}}', "unclear"),
        ("200", "{}", "unclear"),
        ("200", "1", "unclear"),
        ("200", json.dumps(partly_refused(PLACES[0])), "refused"),
        ("500", json.dumps(scores_of(PLACES[0])), "unclear"),
        ("500", json.dumps(scores_of(PLACES[1])), "wrong"),
    ],
)
def test_an_http_reply_is_an_answer_an_error_of_ours_or_the_proxys_page(status: str, body: str, outcome: str):
    assert judge_raw(ORACLE, TURN, CallAnswer(outcome="refused", why=status), body.encode()).outcome == outcome


def said(place: Place, counted: int | None = None, scorers: Any = SCORERS, **more: Any) -> dict[str, Any]:
    counted = counted or PLACES.index(place) + 1
    return {**scores_of(place, **more), "dialogue": {each: {"turns": counted} for each in scorers}}


def test_a_turn_of_a_conversation_that_is_lost_or_counted_twice_is_found():
    assert judge_said(ORACLE, PLACES[1], said(PLACES[1])).outcome == "answered"
    assert [judge_said(ORACLE, PLACES[1], said(PLACES[1], each)).outcome for each in (1, 3)] == ["wrong", "wrong"]
    assert judge_said(ORACLE, PLACES[1], said(PLACES[1], scorers=["quality"])).outcome == "wrong"
    assert judge_said(ORACLE, PLACES[1], None).outcome == "lost"
    assert judge_said(ORACLE, Place(0, 0), None).outcome == "answered"


REFUSED_TURN = {**said(PLACES[0]), **partly_refused(PLACES[0])}


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ([None, said(PLACES[0]), None, said(PLACES[1])], "answered"),
        ([None, said(PLACES[0]), None, said(PLACES[1], 1)], "wrong"),
        ([None, said(PLACES[0]), None], "lost"),
        ([None, said(PLACES[0]), None, None], "lost"),
        ([None, REFUSED_TURN], "refused"),
        ([None, REFUSED_TURN, None, said(PLACES[1], moved=0.1)], "wrong"),
    ],
)
def test_a_conversation_is_judged_turn_by_turn_and_its_gravest_fault_counts(replies: list[Any], outcome: str):
    verdict = judge_talk(ORACLE, 0, replies)
    assert verdict.outcome == outcome
    assert outcome != "answered" or verdict.is_computed


CLIENT = """
export class TurnScoreError extends Error { code = "overloaded"; }
export class TurnScoreClient {
  async conversation() {
    if (this.isOpen) throw new Error("a second conversation");
    this.isOpen = true;
    const said = [];
    return { isDraining: true, isClosed: false, turns: said, close() {}, async say(speaker, text) {
      said.push(text);
      if (text === "b") return { errors: { quality: {} }, said: [...said] };
      return null;
    } };
  }
  async score({ kind }) {
    if (kind === "ours") throw new TurnScoreError("no");
    if (kind === "Node's") throw Object.assign(new Error("no"), { code: "ERR_INVALID_ARG_TYPE" });
    throw new DOMException("no", "AbortError");
  }
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node: apt-get install nodejs")
def test_the_javascript_caller_leaves_reopening_to_its_client_and_tells_only_the_clients_codes(tmp_path: Path):
    client = tmp_path / "client.mjs"
    client.write_text(CLIENT)
    bodies = [("score", {"kind": each}) for each in ("ours", "Node's", "the platform's")]
    orders = [*bodies, ("talk", {"turns": TURNS, "scorers": SCORERS})]
    given = [json.dumps({"id": at, "key": "k", "call": call, "body": body}) for at, (call, body) in enumerate(orders)]
    command = ["node", Path(callers.__file__).with_name("javascript_caller.mjs"), client, "http://127.0.0.1"]
    run = subprocess.run(command, input="\n".join(given), capture_output=True, text=True, timeout=60, check=True)
    told = {each["id"]: each for each in map(json.loads, run.stdout.splitlines())}
    assert [told[each]["error"] for each in range(3)] == ["overloaded", "", ""]
    assert told[3]["reply"] == [None, {"errors": {"quality": {}}, "said": ["a", "b"]}]


def row(line: int, place: Place, **more: Any) -> bytes:
    return json.dumps({"line": line, **scores_of(place, **more)}).encode()


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ([row(1, PLACES[0]), row(2, PLACES[1])], {}),
        ([row(1, PLACES[0])], {"missing": 1}),
        ([row(1, PLACES[0]), row(1, PLACES[0]), row(2, PLACES[1])], {"duplicated": 1}),
        ([row(1, PLACES[1]), row(2, PLACES[1])], {"wrong": 1}),
    ],
)
def test_rows_of_a_file_that_are_missing_double_or_wrong_are_found(rows: list[bytes], broken: dict[str, int]):
    ledger = Ledger("none")
    judge_file(ORACLE, [Ask("score", [each], SCORERS) for each in PLACES], rows, ledger)
    counts = ledger.counts[FILE]
    assert {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]} == broken
    assert bool(ledger.broken) == bool(broken)


def corpus_row(place: Place, **more: Any) -> dict[str, Any]:
    scores = scores_of(place, **more)["scores"]
    fields = {f"{name}_{field}": each[field] for name, each in scores.items() for field in each}
    return {"dialogue": str(place.dialogue), "index": place.turn, **fields}


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ([corpus_row(each) for each in PLACES], {}),
        ([corpus_row(PLACES[0])], {"missing": 1}),
        ([corpus_row(PLACES[0]), *map(corpus_row, PLACES)], {"duplicated": 1}),
        ([corpus_row(PLACES[0]), corpus_row(PLACES[1], moved=0.1)], {"wrong": 1}),
    ],
)
def test_rows_of_a_corpus_that_are_missing_double_or_wrong_are_found(rows: list[Any], broken: dict[str, int]):
    ledger = Ledger("none")
    judge_corpus(ORACLE, PLACES, rows, ledger)
    counts = ledger.counts[CORPUS]
    assert {name: counts[name] for name in ("missing", "duplicated", "wrong") if counts[name]} == broken


def honest(ledger: Ledger) -> None:
    ledger.ask("JavaScript")
    ledger.settle("JavaScript", Verdict("answered", is_computed=True), 0.02)
    for _ in range(9):
        ledger.ask(PLAIN)
        ledger.settle(PLAIN, Verdict("failed", "the connection was lost"))


def line_of(spoil: Callable[[Ledger], None], fault: str = "a replica: killed") -> dict[str, Any]:
    ledger = Ledger(fault)
    honest(ledger)
    spoil(ledger)
    ledger.close()
    line = {"seconds": 1.0, **ledger.as_json()}
    return {**line, "broken": [*line["broken"], *find_failures(line)]}


def test_an_honest_line_keeps_every_claim():
    assert all(each.holds for each in check_lines([line_of(lambda _: None)]))


def fail(ledger: Ledger, caller: str, times: int = 1, refused: str = "") -> None:
    for _ in range(times):
        ledger.ask(caller)
        ledger.settle(caller, Verdict("refused", refused) if refused else Verdict("failed", "connection_failed"))


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (lambda each: each.ask("JavaScript"), "no acknowledged answer is lost"),
        (lambda each: each.count(CORPUS, "rows lost"), "no acknowledged answer is lost"),
        (lambda each: each.count(FILE, "missing", 3), "no row is missing or double"),
        (lambda each: (each.ask(RAW), each.settle(RAW, Verdict("wrong", "0.1 for 0.2"))), "no value is wrong"),
        (lambda each: (each.ask(RAW), each.settle(RAW, Verdict("unclear", "{}"))), "every error is a clear one"),
        (lambda each: fail(each, "JavaScript"), "every fault is survived as promised"),
        (lambda each: fail(each, RAW, 100), "every fault is survived as promised"),
        (lambda each: each.breaks("a switch was not made"), "every fault is survived as promised"),
    ],
)
def test_each_claim_can_break_and_names_the_fault(spoil: Callable[[Ledger], None], claim: str):
    lines = [line_of(lambda _: None), line_of(spoil)]
    broken = {each.claim: each.found for each in check_lines(lines) if each.holds is False}
    assert "a replica: killed" in broken[claim]
    assert set(broken) <= {claim, "every fault is survived as promised"}


@pytest.mark.parametrize(
    ("fault", "caller", "refused", "most"),
    [
        ("a replica: killed", RAW, "", 28),
        ("every replica restarted in turn", RAW, "", 28),
        *[(each, RAW, "", 0) for each in ("none", "models switched", "switches refused", "keys rotated")],
        ("the disk full", STRANGER, "", 0),
        *[
            ("none", RAW, each, 0)
            for each in ("unauthenticated", "internal", "invalid_request", "internal, overloaded")
        ],
        ("the proxy: killed", RAW, "unauthenticated", 28),
        ("none", METERED, "overloaded", 1000),
        ("none", STRANGER, "unauthenticated", 1000),
        ("none", STRANGER, "overloaded", 0),
    ],
)
def test_raw_callers_see_failures_only_of_processes_and_refusals_only_of_their_own(
    fault: str, caller: str, refused: str, most: int
):
    def failures(times: int) -> list[str]:
        ledger = Ledger(fault)
        fail(ledger, caller, times, refused)
        return find_failures(ledger.as_json())

    assert failures(most) == []
    assert most == 1000 or failures(most + 1) == [f"{caller}: {most + 1} failed of {most + 1}"]


async def test_a_stopped_run_keeps_no_line_of_a_fault_whose_requests_it_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(endurance, "_SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(endurance, "_LAST_ANSWER_SECONDS", 0.3)
    calling, made = SimpleNamespace(ledger=None), list[str]()

    async def call() -> None:
        calling.ledger.ask(RAW)
        await asyncio.Event().wait()

    async def make(fault: str, _: Any) -> list[str]:
        made.append(fault)
        if len(made) == 2:
            raise OSError("the machine's")
        return []

    calling.run = call
    whole = SimpleNamespace(wait_until_whole=lambda: None)
    maker: Any = SimpleNamespace(make=make, names=lambda: ["none"], memory_mib=list, running=whole)
    lines: list[Any] = []
    with pytest.raises(OSError, match="the machine's"):
        await Endurance()._run_faults(maker, calling, lines, tmp_path / "pieces.jsonl")  # type: ignore[arg-type]
    assert (len(made), lines, read_lines(tmp_path / "pieces.jsonl")) == (2, [], [])


@pytest.mark.parametrize(("caller", "may"), [(RAW, True), ("JavaScript", False)])
def test_only_callers_who_repeat_nothing_see_that_the_proxy_is_gone(caller: str, may: bool):
    line = line_of(lambda each: fail(each, caller, 100), "the proxy: killed")
    assert all(each.holds for each in check_lines([line])) == may


def test_no_caller_sees_that_a_redis_is_gone():
    assert find_failures(line_of(lambda each: fail(each, RAW, 1), "the Redis master: killed"))


def test_a_state_whose_last_line_was_cut_goes_on_after_the_one_before(tmp_path: Path):
    file = tmp_path / "pieces.jsonl"
    whole = json.dumps(line_of(lambda _: None))
    file.write_text(f"{whole}\n{whole[:50]}")
    assert count_requests(read_lines(file)) == 10
    cut_broken_line(file)
    assert file.read_text() == f"{whole}\n"
    cut_broken_line(tmp_path / "none")
    assert read_lines(tmp_path / "none") == []


def test_the_same_seed_asks_the_same_and_what_is_asked_can_be_judged():
    asks = [Asker(ORACLE, "1").draw("a b") for _ in range(2)]
    assert asks[0] == asks[1]
    asker = Asker(ORACLE, "2")
    calls = {(ask.call, *ask.scorers[:1]) for ask in (asker.draw("a b") for _ in range(800))}
    assert {("score", "reaction"), ("score", "fed"), ("score_batch", "engagement")} <= calls
    assert ORACLE.body(BATCH)["items"][1]["context"] == TURNS[:3]
