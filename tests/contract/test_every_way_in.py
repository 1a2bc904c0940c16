"""The same two hundred requests through both transports and every client: the same bits, the same refusals.

On the starter bundles, with the cache turned off, so that every way has its scores computed for itself.
"""

import pytest
from pydantic import BaseModel
from support import every_way
from support.corpora import content_of, job_of, write_lines
from turnscore_client import AsyncTurnScoreClient
from turnscore_client._files.scoring import patient_with
from turnscore_core.engine import Dialogue, Engine
from turnscore_corpus.command import run_job
from turnscore_corpus.engines.work import ServiceEngine
from turnscore_wire import DialogueRequest, ScoreRequest, Turn

_NOT_SHARED = ("request_id", "timing_ms")
# Four units in the last place of a float32 below 1: ONNX Runtime multiplies one row by another kernel than several, so
# that a turn differs with the number of rows in its batch (not with their width), by 1.2e-7 at most where measured.
_ROUNDING = 2.0**-22


@pytest.fixture(scope="module")
def ways():
    with every_way.every_way(every_way.table_settings()) as opened:
        yield opened


def bits(value):
    """A reply with its numbers as their bits, without what no two calls share."""
    if isinstance(value, BaseModel):
        return bits({name: getattr(value, name) for name in type(value).model_fields})
    if isinstance(value, dict):
        return {name: bits(each) for name, each in value.items() if name not in _NOT_SHARED}
    if isinstance(value, list):
        return [bits(each) for each in value]
    return value.hex() if isinstance(value, float) else value


def for_a_client(request, told):
    """What a typed client makes of it: an item that is not well-formed is the whole call's, before it is sent."""
    if request.call != "score_batch" or not isinstance(told, dict):
        return told
    for place, (item, result) in enumerate(zip(request.fields["items"], told["results"], strict=True)):
        error = result.get("error")
        is_ill_formed = not item["response"].strip() or item.get("deadline_ms") == 0
        if error is not None and is_ill_formed:
            assert error["field"].startswith(f"items.{place}.")
            return str(error["code"]), error["field"]
    return told


def ask(ways, way, request):
    answered = answer(ways, way, request)
    return bits(answered) if isinstance(answered, BaseModel) else answered


_ANSWERS = {}


def answer(ways, way, request):
    """A request of the table is asked once each way, whatever tests look at its answer."""
    if request.name in ("messages", "turns", "user turns"):  # of no table
        return ways.ways[way](request)
    if (way, request.name) not in _ANSWERS:
        _ANSWERS[way, request.name] = ways.ways[way](request)
    return _ANSWERS[way, request.name]


@pytest.mark.parametrize("request_", every_way.requests(), ids=lambda each: each.name)
def test_every_way_in_gives_the_same_answer(ways, request_):
    told = ask(ways, "http", request_)
    assert isinstance(told, tuple) == (request_.kind == "broken")
    if request_.protobuf:
        assert ask(ways, "grpc", request_) == told
    else:
        with pytest.raises(every_way.UnsayableError):
            ask(ways, "grpc", request_)
    wanted = for_a_client(request_, told)
    for way in ("http client", "async http client", "grpc client", "async grpc client"):
        assert ask(ways, way, request_) == wanted, way


_CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "hi, what did you do?"}, {"type": "image_url"}]},
    {"role": "assistant", "content": "let me think.", "tool_calls": [{}]},
    {"role": "tool", "content": "volcano"},
    {"role": "assistant", "parts": [{"type": "text", "content": "i hiked up a volcano!"}]},
]
_CHAT_TURNS = [
    {"speaker": "user", "text": "hi, what did you do?"},
    {"speaker": "system", "text": "let me think. i hiked up a volcano!"},
]
_SPOKEN = {"context": _CHAT_TURNS[:1], "response": _CHAT_TURNS[1]["text"]}
_RIVALS = {"candidates": ["ok.", "i hiked up a volcano!"]}
_ASKED = {"scorers": ["engagement", "sentiment_stop"]}


_MESSAGE_CALLS = [
    ("score", {"messages": _CHAT}, _SPOKEN, {"index": 4, "skipped": 1}),
    ("score", {"messages": _CHAT, "response": "ok."}, {"context": _CHAT_TURNS, "response": "ok."}, {"skipped": 1}),
    ("score_dialogue", {"messages": _CHAT}, {"turns": _CHAT_TURNS}, {"skipped": 1}),
    ("rank", {"messages": _CHAT[:2], **_RIVALS}, {"context": _CHAT_TURNS[:1], **_RIVALS}, {}),
    ("score_batch", {"items": [{"messages": _CHAT, **_ASKED}]}, {"items": [{**_SPOKEN, **_ASKED}]}, {}),
]


@pytest.mark.parametrize(("call", "messages", "turns", "places"), _MESSAGE_CALLS)
def test_messages_have_the_scores_of_their_turns_and_the_same_reply_every_way(ways, call, messages, turns, places):
    own = {} if call == "score_batch" else _ASKED
    told = ask(ways, "http", every_way.Request("messages", "good", call, {**messages, **own}))
    spoken = ask(ways, "http", every_way.Request("turns", "good", call, {**turns, **own}))
    assert without_places(told) == without_places(spoken)
    assert {name: told[name] for name in places} == places
    if call == "score_dialogue":
        assert [turn["index"] for turn in told["turns"]] == [4]
    for way in ways.ways:
        assert ask(ways, way, every_way.Request("messages", "good", call, {**messages, **own})) == told, way


_NO = {"speaker": "user", "text": "this does not help, let me talk to a human please"}
_BOTH = {"scorers": ["quality", "reaction"]}


_USER_CALLS = [
    ("score", {"context": _CHAT_TURNS, "response": _NO["text"], "speaker": "user"}, {"scorers": ["reaction"]}),
    ("score", {"messages": [*_CHAT, {"role": "user", "content": _NO["text"]}]}, {"scorers": ["reaction"]}),
    ("score_dialogue", {"turns": [*_CHAT_TURNS, _NO]}, _BOTH),
    ("score_dialogue", {"messages": [*_CHAT, {"role": "user", "content": _NO["text"]}]}, _BOTH),
]


@pytest.mark.parametrize(("call", "fields", "asked"), _USER_CALLS)
def test_user_turns_have_the_same_reply_every_way(ways, call, fields, asked):
    request = every_way.Request("user turns", "good", call, {**fields, **asked})
    told = ask(ways, "http", request)
    scored = told["turns"][-1] if call == "score_dialogue" else told
    assert list(scored["scores"]) == ["reaction"]
    assert len(scored["scores"]["reaction"]["details"]) == 10
    assert {"frustrated", "asks_for_a_person"} <= set(scored["scores"]["reaction"]["signals"])
    for way in ways.ways:
        assert ask(ways, way, request) == told, way
    loaded = {name: ways.loaded[name] for name in _BOTH["scorers"]}
    with Engine([], limits=every_way.LIMITS, load=lambda _: loaded) as engine:
        kind = ScoreRequest if call == "score" else DialogueRequest
        [reply] = engine.answer([kind.model_validate(request.fields)])
    assert without_numbers(bits(reply)) == without_numbers(told)


def without_places(part):
    if isinstance(part, dict):
        return {name: without_places(each) for name, each in part.items() if name not in ("index", "skipped")}
    return [without_places(each) for each in part] if isinstance(part, list) else part


def test_no_score_is_another_than_in_the_committed_table(ways):
    """To the last bit where this machine computes as the one that made it; else within what each bundle states."""
    table = every_way.read_table()
    allowed = {} if table["instruction_set"] == every_way.instruction_set() else every_way.tolerances()
    assert list(table["scores"]) == [each.name for each in every_way.requests()]
    for request in every_way.requests():
        for transport in ("http", "grpc") if request.protobuf else ("http",):
            row = every_way.row_of(answer(ways, transport, request))
            assert every_way.is_alike(row, table["scores"][request.name], allowed), (request.name, transport)


def test_in_a_crowd_every_turn_has_the_score_that_it_has_alone(ways):
    crowd = [
        each for each in every_way.requests() if each.kind != "broken" and each.name != "items-that-are-not-well-formed"
    ]
    for request, together in zip(crowd, ways.all_at_once(crowd), strict=True):
        alone = answer(ways, "http", request)
        assert isinstance(together, BaseModel), request.name
        assert isinstance(alone, BaseModel), request.name
        for here, there in zip(every_way.scores_of(together), every_way.scores_of(alone), strict=True):
            assert here.keys() == there.keys()
            for name, score in here.items():
                assert score.value == pytest.approx(there[name].value, abs=_ROUNDING), request.name
                assert (score.tokens, score.model) == (there[name].tokens, there[name].model)


# How far a FED value of an engine's call may be from the service's: the dialogue's pass is the same.
_FED_TOGETHER = 1e-6


@pytest.fixture(scope="module")
def engine(ways):
    every = every_way.table_settings().default_scorers
    loaded = {name: ways.loaded[name] for name in every}
    with Engine([], limits=every_way.LIMITS, load=lambda _: loaded) as engine:
        yield engine


def dialogues():
    """The good dialogues of the table that are asked without options."""
    return [each for each in every_way.requests() if each.call == "score_dialogue" and each.kind != "broken"]


def as_dialogue(request):
    return Dialogue(request.name, [Turn(**turn) for turn in request.fields["turns"]])


@pytest.fixture(scope="module")
def alone(engine):
    """What the engine gives for each of them in a call of its own."""
    return {each.name: engine.score([as_dialogue(each)])[0] for each in dialogues()}


def test_the_engine_gives_a_dialogue_the_bits_of_the_service_s_reply(ways, alone):
    assert len(dialogues()) > 10
    for request in dialogues():
        reply = ways.ways["http"](
            every_way.Request(request.name, "good", "score_dialogue", {"turns": request.fields["turns"]})
        )
        result = alone[request.name]
        assert [turn.index for turn in result.turns] == [turn.index for turn in reply.turns]
        assert [bits(dict(turn.scores)) for turn in result.turns] == [bits(turn.scores) for turn in reply.turns]
        assert bits(dict(result.aggregates)) == bits(reply.dialogue)


def test_dialogues_that_the_engine_scores_together_have_the_scores_that_they_have_alone(engine, alone):
    before = engine.turns_computed
    asked = dialogues() * 2
    together = engine.score([as_dialogue(each) for each in asked])
    assert engine.turns_computed - before <= 3 * sum(len(each.turns) for each in together[: len(asked) // 2])
    assert [bits(vars_of(each)) for each in together[len(asked) // 2 :]] == [
        bits(vars_of(each)) for each in together[: len(asked) // 2]
    ]
    for request, result in zip(dialogues(), together, strict=False):
        for here, there in zip(result.turns, alone[request.name].turns, strict=True):
            assert list(here.scores) == list(there.scores) == _names(engine)
            for name, score in here.scores.items():
                most = _FED_TOGETHER if name == "fed" else _ROUNDING
                assert score.value == pytest.approx(there.scores[name].value, abs=most), (request.name, name)


def _names(engine):
    return [each.scorer for each in engine.models]


def vars_of(result):
    return {"turns": [dict(turn.scores) for turn in result.turns], "dialogue": dict(result.aggregates)}


def test_a_corpus_through_the_service_has_the_scores_of_this_machine_s_engine_to_the_last_bit(ways, tmp_path):
    loaded = {name: ways.loaded[name] for name in ("engagement", "quality", "sentiment_stop")}
    rows = [{"id": each.name, "turns": each.fields["turns"]} for each in dialogues()]
    lines = write_lines(tmp_path / "a.jsonl", rows)

    def through_the_service():
        client = AsyncTurnScoreClient(ways.url, max_retries=0)
        return ServiceEngine(client, patient_with(client, list(loaded), 8, (60.0, 60.0)), list(loaded))

    engines = {"here": lambda: Engine([], limits=every_way.LIMITS, load=lambda _: loaded), "there": through_the_service}
    for place, open_engine in engines.items():
        run_job(job_of(lines, tmp_path / place, open_engine, block_dialogues=1))
    here, there = (content_of(tmp_path / place) for place in engines)
    assert len(here["turns"]) > len(rows)
    assert there == here


def test_a_file_s_engine_answers_every_request_as_the_service_does(ways, engine):
    kinds = {"score": ScoreRequest, "score_dialogue": DialogueRequest}
    asked = [each for each in every_way.requests() if each.call in kinds and each.kind != "broken"]
    assert len(asked) > 60
    for request in asked:
        asks_all = request.fields if "scorers" in request.fields else {**request.fields, "scorers": _names(engine)}
        [reply] = engine.answer([kinds[request.call].model_validate(asks_all)])
        told = ways.ways["http"](request)
        assert without_numbers(bits(reply)) == without_numbers(bits(told)), request.name
        for here, there in zip(every_way.scores_of(reply), every_way.scores_of(told), strict=True):
            for name, score in here.items():
                most = _FED_TOGETHER if name == "fed" else _ROUNDING
                assert score.value == pytest.approx(there[name].value, abs=most), (request.name, name)


def without_numbers(part):
    """Without what is rounded; a dialogue's aggregates are of the values."""
    if isinstance(part, dict):
        rounded = ("value", "percentile", "details", "dialogue")
        return {name: without_numbers(each) for name, each in part.items() if name not in rounded}
    return [without_numbers(each) for each in part] if isinstance(part, list) else part


def test_a_file_s_engine_refuses_in_the_words_of_the_service(ways, engine):
    turns = [{"speaker": "user", "text": "hi"}] * (every_way.LIMITS.max_turns + 1)
    for fields in (
        {"turns": turns},
        {"turns": turns[:1]},
        {"turns": [*turns[:1], {"speaker": "system", "text": "x"}], "scorers": ["none"]},
    ):
        [reply] = engine.answer([DialogueRequest.model_validate(fields)])
        told = ways.ways["http"](every_way.Request("refused", "broken", "score_dialogue", fields))
        assert (reply.error.code, reply.error.field) == told
