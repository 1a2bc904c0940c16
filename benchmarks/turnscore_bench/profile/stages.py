"""Stages: to which part of a request's path a line belongs, by its file and function. Pure."""

from collections.abc import Iterator
from functools import cache
from types import FrameType

LOOP = "event loop and kernel"

RULES: tuple[tuple[str, str], ...] = (
    ("uvicorn/protocols/websockets/", "WebSocket: frames"),
    ("uvicorn/protocols/", "HTTP: connections and parsing"),
    ("api/http/protocol.py", "HTTP: connections and parsing"),
    ("websockets/", "WebSocket: frames"),
    ("api/websocket/websocket_protocol.py", "WebSocket: frames"),
    ("opentelemetry/", "layers before the API"),
    ("_bentoml", "layers before the API"),
    ("bentoml/", "layers before the API"),
    ("starlette/middleware", "layers before the API"),
    ("starlette/applications.py", "layers before the API"),
    ("starlette/routing.py", "layers before the API"),
    ("fastapi/", "layers before the API"),
    ("turnscore_service/bento.py", "layers before the API"),
    ("turnscore_core/deadline.py:within", "API: head, key, body"),
    ("starlette/requests.py", "API: head, key, body"),
    ("starlette/responses.py", "replies: objects and encoding"),
    ("api/http/answers.py:encode_reply", "replies: objects and encoding"),
    ("api/http/answers.py:send_answer", "replies: objects and encoding"),
    ("api/websocket/websocket_door.py:_send_text", "replies: objects and encoding"),
    ("api/grpc/messages.py:write_message", "replies: objects and encoding"),
    ("api/grpc/messages.py", "decoding"),
    ("api/decoder.py", "decoding"),
    ("turnscore_wire/v1/conversion.py:write", "replies: objects and encoding"),
    ("turnscore_wire/v1/conversion.py:read", "decoding"),
    ("turnscore_wire/requests.py", "decoding"),
    ("turnscore_wire/conversations.py", "decoding"),
    ("api/", "API: head, key, body"),
    ("/auth/", "API: head, key, body"),
    ("scheduling/answered_bodies.py", "API: head, key, body"),
    ("grpc/", "gRPC library"),
    ("conversations/", "conversation"),
    ("scheduling/dialogue_tally.py", "conversation"),
    ("scheduling/request_checks.py", "checks"),
    ("scheduling/items.py", "trimming, keys, cache"),
    (":trim", "trimming, keys, cache"),
    (":inputs_of", "trimming, keys, cache"),
    ("scorers/history.py", "trimming, keys, cache"),
    ("/cache/", "trimming, keys, cache"),
    ("scheduling/admission.py", "admission"),
    ("scheduling/shedding.py", "admission"),
    ("scheduling/tokenizer_stage.py", "tokenizing"),
    ("scheduling/isolation.py", "tokenizing"),
    ("inference/text_tokenizer.py", "tokenizing"),
    ("inference/whole_words.py", "tokenizing"),
    (":encode", "tokenizing"),
    ("scheduling/stages.py", "hand-over to threads"),
    ("scheduling/crew.py", "hand-over to threads"),
    ("concurrent/futures/", "hand-over to threads"),
    ("inference/onnx_backend.py", "the runtime"),
    (":score_rows", "the runtime"),
    ("scheduling/batch", "batching"),
    ("scheduling/outcomes.py", "replies: objects and encoding"),
    (":percentile", "replies: objects and encoding"),
    ("scheduling/scheduler.py:_score", "replies: objects and encoding"),
    ("scheduling/scheduler.py", "flights and waiting"),
    ("scheduling/", "flights and waiting"),
    ("prometheus_client/", "metrics"),
    ("turnscore_service/metrics", "metrics"),
    ("/logging/", "logging"),
    ("turnscore_service/log_setup.py", "logging"),
)
"""The end of a file's path or a part of it, with a function's name behind a colon; the first that fits counts."""

STAGES = tuple(dict.fromkeys([LOOP, *(stage for _, stage in RULES)]))


@cache
def stage_of(file: str, function: str) -> str | None:
    """The stage of a function; None for one that serves several, which belongs to its caller."""
    for part, stage in RULES:
        path, _, wanted = part.partition(":")
        if path in file and (not wanted or wanted == function):
            return stage
    return None


def describe(frame: FrameType) -> tuple[str, str, int]:
    """The stage of the innermost function that has one, and the file and line of ours that is nearest to it."""
    frames = list(_outwards(frame))
    stage = next((found for each in frames if (found := stage_of(*_name(each)))), LOOP)
    own = next((each for each in frames if "turnscore_" in each.f_code.co_filename), frame)
    return stage, own.f_code.co_filename, own.f_lineno or 0


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> tuple[str, str]:
    return frame.f_code.co_filename, frame.f_code.co_name
