"""The wire types: chatbots' messages, conversations' messages, and their way to protobuf and back."""

import json
from itertools import pairwise

import pytest
import turnscore_wire as wire
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from turnscore_wire.conversations import Transcript
from turnscore_wire.messages import join_texts
from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).filter(str.strip)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,c2VjcmV0"}}
PROMPTS = st.sampled_from(
    [
        {"role": "system", "content": "secret prompt"},
        {"role": "developer", "content": [{"type": "text", "text": "secret prompt"}]},
    ]
)
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "secret"}}]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "secret result"}
LOOP = st.sampled_from([[CALLS, RESULT], [CALLS, RESULT, RESULT, CALLS, RESULT], [RESULT]])
CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
DIALOGUE = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), TEXT), min_size=1, max_size=6)


def said_in_parts(text, *, is_otel):
    name = "content" if is_otel else "text"
    return {"type": "text", name: text}


@st.composite
def forms(draw, role, text):
    """One message in any of the forms that say the same."""
    is_otel = draw(st.booleans())
    listed = [said_in_parts(text, is_otel=is_otel), *draw(st.lists(st.just(IMAGE), max_size=2))]
    if draw(st.booleans()):
        listed.insert(0, {"type": "reasoning", "content": "secret thought"})
    choices = [{"content": text}, {"content": listed}, {"parts": listed}]
    if role == "assistant":
        choices.append({"content": None, "refusal": text})
    return {"role": role, "name": "secret name", **draw(st.sampled_from(choices))}


def read(messages):
    return [wire.ChatMessage.model_validate(each) for each in messages]


def mapped(messages):
    return wire.map_messages(read(messages))


def turns_of(dialogue):
    return [wire.Turn(speaker="user" if role == "user" else "system", text=text) for role, text in dialogue]


@given(st.data(), DIALOGUE)
def test_what_is_said_is_the_dialogue_in_every_form_and_every_place_is_kept(data, dialogue):
    messages, places = [], []
    for role, text in dialogue:
        messages.extend(data.draw(st.lists(PROMPTS, max_size=2)))
        places.append(len(messages))
        messages.append(data.draw(forms(role, text)))
    found = mapped(messages)
    assert found.turns == turns_of(dialogue)
    assert found.indices == places
    assert found.skipped == json.dumps(messages).count(json.dumps(IMAGE))


@given(st.data(), st.lists(TEXT, min_size=1, max_size=4), LOOP)
def test_the_assistants_texts_around_tools_are_one_turn_until_the_user_speaks(data, texts, loop):
    messages = [{"role": "user", "content": "hi"}]
    for text in texts:
        messages += [*loop, data.draw(forms("assistant", text))]
    found = mapped([*messages, {"role": "user", "content": "and?"}, *loop, {"role": "assistant", "content": "so."}])
    assert [turn.text for turn in found.turns] == ["hi", join_texts(texts), "and?", "so."]
    assert found.indices[1] == len(messages) - 1
    assert not found.goes_on
    assert mapped([*messages, *loop]).goes_on


def test_a_text_with_a_tool_call_belongs_to_the_turn_after_it():
    messages = [{"role": "assistant", "content": "let me see.", "tool_calls": [{}]}, RESULT]
    messages.append({"role": "assistant", "content": "sunny."})
    assert mapped(messages).turns == [wire.Turn(speaker="system", text="let me see. sunny.")]


def test_two_texts_without_tools_between_stay_two_turns():
    assert mapped([{"role": "assistant", "content": each} for each in ("hi.", "hello?")]).indices == [0, 1]


@given(st.data(), DIALOGUE, LOOP)
def test_what_a_client_sends_says_the_same_over_both_transports_and_nothing_unread(data, dialogue, loop):
    messages = [data.draw(PROMPTS), *loop, *(data.draw(forms(role, text)) for role, text in dialogue)]
    given_ = {"messages": [*messages, {"role": "assistant", "content": "end"}]}
    request = wire.ScoreRequest.model_validate(given_)
    sent = request.model_dump_json(exclude_unset=True)
    for over_the_wire in (json.loads(sent), to_fields(to_message(request))):
        heard = wire.ScoreRequest.model_validate(over_the_wire)
        assert (heard.context, heard.response) == (request.context, request.response)
        assert heard.place() == request.place()
    assert "secret" not in sent
    assert "base64" not in sent


@given(st.data(), DIALOGUE, LOOP)
def test_a_conversation_that_hears_messages_in_pieces_has_the_turns_of_the_whole(data, dialogue, loop):
    messages = []
    for role, text in dialogue:
        calls = role == "assistant" and data.draw(st.booleans())
        messages.append({"role": role, "content": text, **({"tool_calls": [{}]} if calls else {})})
        messages += [RESULT] if calls else []
    whole, transcript, place = mapped(messages), Transcript([], 0), 0
    while place < len(messages):
        size = data.draw(st.integers(1, len(messages)))
        index, turn = transcript.add_messages(read(messages[place : place + size]))
        place = min(len(messages), place + size)
        known = mapped(messages[:place])
        assert (turn is not None) == (not known.goes_on)
        assert index == (known.indices[-1] if turn is not None else place - 1)
    assert [*transcript.turns, *wire.map_messages(transcript.waiting).turns] == whole.turns
    assert transcript.taken + len(transcript.waiting) == len(messages)


@given(st.lists(TEXT | st.just(""), max_size=5))
def test_joined_texts_keep_every_character_and_grow_together_nowhere(texts):
    joined, spoken = join_texts(texts), [text for text in texts if text]
    bare = [left for left, right in pairwise(spoken) if not left[-1].isspace() and not right[0].isspace()]
    assert joined.replace(" ", "") == "".join(texts).replace(" ", "")
    assert len(joined) == sum(map(len, texts)) + len(bare)


def test_messages_stand_for_the_turns_of_every_request():
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    turns = turns_of([("user", "hi"), ("assistant", "hello")])
    assert wire.ScoreRequest.model_validate({"messages": said}).response == "hello"
    asked = wire.ScoreRequest.model_validate({"messages": said, "response": "or this?"})
    assert (asked.context, asked.response, asked.place()) == (turns, "or this?", {"skipped": 0})
    assert wire.DialogueRequest.model_validate({"messages": said}).turns == turns
    assert wire.RankRequest.model_validate({"messages": said, "candidates": ["a"]}).context == turns
    assert wire.ConversationOpening.model_validate({"messages": said}).context == turns


USER = {"role": "user", "content": "hi"}


WRONG_REQUESTS = [
    ({"messages": []}, "messages"),
    ({"messages": [USER, 3]}, "messages.1"),
    ({"messages": [USER, {"role": "bot", "content": "a"}]}, "messages.1.role"),
    ({"messages": [USER, {"role": "assistant", "text": "a"}]}, "messages.1.content"),
    ({"messages": [USER, {"role": "assistant", "content": "a\0"}]}, "messages.1.content"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": [IMAGE, {"type": "txt"}]}]}, "messages.0.content.1.type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
    ({"messages": [{"role": "user", "parts": [{"type": "text", "content": 7}]}]}, "messages.0.parts.0.content"),
    ({"messages": [{"role": "user", "content": "a", "parts": [IMAGE]}]}, "messages.0.parts"),
    ({"messages": [USER, {"role": "assistant", "content": "a", "calls_tools": 1}]}, "messages.1.calls_tools"),
    ({"messages": [USER]}, "messages"),
    ({"messages": [USER, CALLS, RESULT]}, "messages"),
    ({"messages": [{"role": "assistant", "content": "hi"}, {"role": "assistant", "content": ""}]}, "messages"),
    ({"messages": [{"role": "system", "content": "hi"}]}, "messages"),
    ({"messages": [USER, {"role": "assistant", "content": "\u200d"}]}, "messages"),
    *(({"response": text}, "response") for text in (" ", "\u200b", "\u2060 \ufeff\n")),
    ({"messages": [USER], "context": [{"speaker": "user", "text": "a"}], "response": "a"}, "context"),
]


@pytest.mark.parametrize(("fields", "field"), WRONG_REQUESTS)
def test_a_wrong_message_is_refused_by_the_name_of_its_field(fields, field):
    for refuse in (
        wire.ScoreRequest.model_validate,
        lambda given: wire.ScoreRequest.model_validate_json(json.dumps(given)),
    ):
        with pytest.raises(ValidationError) as refused:
            refuse(fields)
        assert wire.describe_refusal(refused.value)[0] == field


def test_turns_together_with_messages_are_refused():
    with pytest.raises(ValidationError) as refused:
        wire.DialogueRequest.model_validate({"messages": [USER], "turns": [{"speaker": "user", "text": "a"}]})
    assert wire.describe_refusal(refused.value)[0] == "turns"


DUMPED = [
    wire.ScoreRequest(context=[wire.Turn(speaker="user", text="hi")], response="hello"),
    wire.ScoreRequest.model_validate({"messages": CHAT}),
    wire.ScoreRequest.model_validate({"messages": CHAT, "response": "and then?"}),
    wire.DialogueRequest.model_validate({"messages": CHAT}),
    wire.RankRequest.model_validate({"messages": CHAT, "candidates": ["a", "b"]}),
    wire.ConversationOpening.model_validate({"messages": CHAT}),
    wire.ConversationOpening(),
]


@pytest.mark.parametrize("given", DUMPED)
def test_a_dumped_request_is_the_request(given):
    for dumped in (given.model_dump_json(), given.model_dump_json(exclude_unset=True)):
        assert type(given).model_validate_json(dumped) == given
        assert ("messages" in json.loads(dumped)) is bool(given.messages)


TURN = {"speaker": "system", "text": "hello"}


WRONG_CHAT_MESSAGES = [
    ({}, "body"),
    ({"open": {}, "turn": TURN}, "body"),
    ({"turn": {"speaker": "bot", "text": "hi"}}, "turn.speaker"),
    ({"turn": {**TURN, "deadline_ms": 0}}, "turn.deadline_ms"),
    ({"open": {"context": [{"speaker": "user"}]}}, "open.context.0.text"),
    ({"open": {}, "close": {}}, "close"),
    ({"messages": {"messages": [{"role": "user", "content": [{}]}]}}, "messages.messages.0.content.0.type"),
    ({"messages": {"messages": [{"role": "tool"}]}, "turn": TURN}, "body"),
]


@pytest.mark.parametrize(("message", "field"), WRONG_CHAT_MESSAGES)
def test_a_message_that_is_wrong_names_its_field(message, field):
    with pytest.raises(ValidationError) as refused:
        wire.ConversationMessage.model_validate(message)
    assert wire.describe_refusal(refused.value)[0] == field


def test_a_reader_skips_what_it_does_not_know():
    reply = wire.ConversationReply.model_validate({"ack": {"index": 3, "mood": 1}, "applause": {}})
    assert reply == wire.ConversationReply.model_validate({"ack": {"index": 3}})
    assert not wire.ConversationReply.model_validate({"applause": {}}).model_dump(exclude_none=True)


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
    "value": 0.1 + 0.2, "percentile": None, "details": {"fluent": -0.0, "own": 5e-324}, "model": "fed:1.0.0",
    "tokens": {"used": 3, "dropped": 0}, "cached": True,
}  # fmt: skip
TIMING = {"total": 7.9, "tokenize": 0.1, "queue": 0.0, "inference": 6.1}
ERROR = {"code": "overloaded", "message": "no room", "field": None, "retry_after_ms": 20}
SCORED = {"scores": {"fed": SCORE, "engagement": {**SCORE, "percentile": 0.0}}, "errors": {"x": ERROR}}
REPLY = {"request_id": "r-1", "timing_ms": TIMING}
AGGREGATE = {"mean": 0.5, "min": -1.0, "max": 1e-9, "turns": 4}

READ = {"tokens": {"used": 3, "dropped": 0}, "cached": False}
COMPARED = {"texts": [{**READ, "similarities": [-0.5, 1.0], "best": 1}, {**READ, "similarities": [0.0], "best": None}]}

SAMPLES = [
    (wire.ScoreRequest, {"response": "hello"}),
    (wire.ScoreRequest, {**CHOICE, "context": TURNS, "response": "hello"}),
    (wire.BatchRequest, {"items": [{"response": "a"}, {**CHOICE, "response": "b"}]}),
    (wire.DialogueRequest, {**CHOICE, "turns": TURNS}),
    (wire.RankRequest, {**CHOICE, "candidates": ["a", "a"], "weights": {"fed": 0.0, "engagement": 2.0}}),
    (wire.SimilarityRequest, {"texts": ["a", "a"]}),
    (
        wire.SimilarityRequest,
        {"texts": ["a"], "references": ["b"], "deadline_ms": 3, "cache": "bypass", "cache_namespace": "n"},
    ),
    (wire.ScoreRequest, {"messages": MESSAGES}),
    (wire.DialogueRequest, {"messages": MESSAGES}),
    (wire.ConversationMessage, {"messages": {"messages": MESSAGES, "deadline_ms": 5}}),
    (wire.ConversationMessage, {"open": {}}),
    (wire.ConversationMessage, {"open": {**CHOICE, "context": TURNS}}),
    (wire.ConversationMessage, {"turn": {"speaker": "system", "text": "hello", "deadline_ms": 5}}),
    (wire.ScoreReply, {**REPLY, **SCORED}),
    (wire.ScoreReply, {**REPLY, "scores": {}}),
    (wire.BatchReply, {"request_id": "r", "results": [{**REPLY, **SCORED}, {"error": ERROR, "request_id": "r"}]}),
    (wire.DialogueReply, {**REPLY, "turns": [{"index": 0, **SCORED}], "dialogue": {"fed": AGGREGATE}}),
    (wire.RankReply, {**REPLY, "candidates": [{"index": 1, "combined": None, **SCORED}], "weights": {"fed": 1.0}}),
    (wire.SimilarityReply, {**REPLY, **COMPARED, "references": [READ], "model": "encoder:1.0.0", "digest": "0" * 64}),
    (wire.ModelsReply, {"request_id": "r", "models": [], "limits": {"max_turns": 7}}),
    (wire.ErrorReply, {"error": {"code": "internal", "message": "m", "field": "a.0"}, "request_id": "r"}),
    (wire.ConversationReply, {"opened": {"request_id": "r", "scorers": ["fed"], "turns": 0}}),
    (wire.ConversationReply, {"ack": {"index": 0}}),
    (wire.ConversationReply, {"scored": {"index": 1, **SCORED, "dialogue": {"fed": AGGREGATE}, "timing_ms": TIMING}}),
    (wire.ConversationReply, {"error": ERROR}),
    (wire.ConversationReply, {"draining": {"ends_in_ms": 1000}}),
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
    assert over_the_wire(wire.ScoreRequest(response="a")) == {"response": "a"}


def test_whole_numbers_in_options_stay_whole_up_to_what_a_double_holds():
    options = {"a": {"whole": 2**53, "beyond": float(2**60), "half": 0.5, "zero": 0}}
    sent = over_the_wire(wire.ScoreRequest(response="a", options=options))["options"]
    assert sent == options
    assert [type(value) for _, value in sorted(sent["a"].items())] == [float, float, int, int]


def test_an_error_code_of_a_later_version_is_not_read_as_another():
    message = turnscore_pb2.ErrorDetail(code=99, message="m")
    with pytest.raises(ValidationError, match="code"):
        wire.ErrorDetail.model_validate(to_fields(message))


def test_a_result_that_is_neither_scores_nor_error_is_refused():
    reply = turnscore_pb2.BatchReply(request_id="r", results=[{}])
    with pytest.raises(ValidationError, match="results"):
        wire.BatchReply.model_validate(to_fields(reply))
