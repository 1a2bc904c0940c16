"""Wire types to protobuf messages and back: nothing lost, nothing made up, what is wrong left to be refused."""

import json

import pytest
from pydantic import ValidationError
from turnscore_wire import (
    BatchReply,
    BatchRequest,
    ConversationMessage,
    ConversationReply,
    DialogueReply,
    DialogueRequest,
    ErrorDetail,
    ErrorReply,
    ModelsReply,
    RankReply,
    RankRequest,
    ScoreReply,
    ScoreRequest,
    SimilarityReply,
    SimilarityRequest,
)
from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

OPTIONS = {
    "fed": {"qualities": ["fluent"], "n": 3, "x": 2.5, "big": 1e300, "no": None, "yes": True, "deep": {"a": [[]]}}
}
CHOICE = {"scorers": ["fed", "engagement"], "options": OPTIONS, "deadline_ms": 300}
TURNS = [{"speaker": "user", "text": "grüß dich 🙂"}, {"speaker": "system", "text": ""}]
MESSAGES = [
    {"role": "developer", "content": "p"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]},
    {"role": "assistant", "content": "b", "tool_calls": [{}]},
]
SCORE = {
    "value": 0.1 + 0.2,
    "percentile": None,
    "details": {"fluent": -0.0, "own": 5e-324},
    "model": "fed:1.0.0",
    "tokens": {"used": 3, "dropped": 0},
    "cached": True,
}
TIMING = {"total": 7.9, "tokenize": 0.1, "queue": 0.0, "inference": 6.1}
ERROR = {"code": "overloaded", "message": "no room", "field": None, "retry_after_ms": 20}
SCORED = {"scores": {"fed": SCORE, "engagement": {**SCORE, "percentile": 0.0}}, "errors": {"x": ERROR}}
REPLY = {"request_id": "r-1", "timing_ms": TIMING}
AGGREGATE = {"mean": 0.5, "min": -1.0, "max": 1e-9, "turns": 4}

READ = {"tokens": {"used": 3, "dropped": 0}, "cached": False}
COMPARED = {"texts": [{**READ, "similarities": [-0.5, 1.0], "best": 1}, {**READ, "similarities": [0.0], "best": None}]}

SAMPLES = [
    (ScoreRequest, {"response": "hello"}),
    (ScoreRequest, {**CHOICE, "context": TURNS, "response": "hello"}),
    (BatchRequest, {"items": [{"response": "a"}, {**CHOICE, "response": "b"}]}),
    (DialogueRequest, {**CHOICE, "turns": TURNS}),
    (RankRequest, {**CHOICE, "candidates": ["a", "a"], "weights": {"fed": 0.0, "engagement": 2.0}}),
    (SimilarityRequest, {"texts": ["a", "a"]}),
    (
        SimilarityRequest,
        {"texts": ["a"], "references": ["b"], "deadline_ms": 3, "cache": "bypass", "cache_namespace": "n"},
    ),
    (ScoreRequest, {"messages": MESSAGES}),
    (DialogueRequest, {"messages": MESSAGES}),
    (ConversationMessage, {"messages": {"messages": MESSAGES, "deadline_ms": 5}}),
    (ConversationMessage, {"open": {}}),
    (ConversationMessage, {"open": {**CHOICE, "context": TURNS}}),
    (ConversationMessage, {"turn": {"speaker": "system", "text": "hello", "deadline_ms": 5}}),
    (ScoreReply, {**REPLY, **SCORED}),
    (ScoreReply, {**REPLY, "scores": {}}),
    (BatchReply, {"request_id": "r", "results": [{**REPLY, **SCORED}, {"error": ERROR, "request_id": "r"}]}),
    (DialogueReply, {**REPLY, "turns": [{"index": 0, **SCORED}], "dialogue": {"fed": AGGREGATE}}),
    (RankReply, {**REPLY, "candidates": [{"index": 1, "combined": None, **SCORED}], "weights": {"fed": 1.0}}),
    (SimilarityReply, {**REPLY, **COMPARED, "references": [READ], "model": "encoder:1.0.0", "digest": "0" * 64}),
    (ModelsReply, {"request_id": "r", "models": [], "limits": {"max_turns": 7}}),
    (ErrorReply, {"error": {"code": "internal", "message": "m", "field": "a.0"}, "request_id": "r"}),
    (ConversationReply, {"opened": {"request_id": "r", "scorers": ["fed"], "turns": 0}}),
    (ConversationReply, {"ack": {"index": 0}}),
    (ConversationReply, {"scored": {"index": 1, **SCORED, "dialogue": {"fed": AGGREGATE}, "timing_ms": TIMING}}),
    (ConversationReply, {"error": ERROR}),
    (ConversationReply, {"draining": {"ends_in_ms": 1000}}),
]


def over_the_wire(model):
    """The model's fields after it was sent and read."""
    return to_fields(getattr(turnscore_pb2, type(model).__name__).FromString(to_message(model).SerializeToString()))


@pytest.mark.parametrize(("wire_type", "fields"), SAMPLES)
def test_a_model_comes_back_as_it_was_sent(wire_type, fields):
    model = wire_type.model_validate(fields)
    back = wire_type.model_validate(over_the_wire(model))
    assert back == model
    # As text too: equality does not tell -0.0 from 0.0.
    assert json.dumps(back.model_dump(mode="json"), sort_keys=True) == json.dumps(
        model.model_dump(mode="json"), sort_keys=True
    )


def test_everything_the_service_takes_and_gives_is_among_the_samples():
    methods = turnscore_pb2.DESCRIPTOR.services_by_name["TurnScorer"].methods
    travelling = {each.name for method in methods for each in (method.input_type, method.output_type)}
    assert travelling - {"ModelsRequest"} <= {wire_type.__name__ for wire_type, _ in SAMPLES}


def test_what_is_not_set_is_left_out():
    assert to_fields(turnscore_pb2.ScoreRequest()) == {}
    assert to_fields(turnscore_pb2.ConversationMessage()) == {}
    assert to_fields(turnscore_pb2.Turn()) == {"text": ""}
    assert over_the_wire(ScoreRequest(response="a")) == {"response": "a"}


def test_whole_numbers_in_options_stay_whole_up_to_what_a_double_holds():
    options = {"a": {"whole": 2**53, "beyond": float(2**60), "half": 0.5, "zero": 0}}
    sent = over_the_wire(ScoreRequest(response="a", options=options))["options"]
    assert sent == options
    assert [type(value) for _, value in sorted(sent["a"].items())] == [float, float, int, int]


def test_an_error_code_of_a_later_version_is_not_read_as_another():
    message = turnscore_pb2.ErrorDetail(code=99, message="m")
    with pytest.raises(ValidationError, match="code"):
        ErrorDetail.model_validate(to_fields(message))


def test_a_result_that_is_neither_scores_nor_error_is_refused():
    reply = turnscore_pb2.BatchReply(request_id="r", results=[{}])
    with pytest.raises(ValidationError, match="results"):
        BatchReply.model_validate(to_fields(reply))
