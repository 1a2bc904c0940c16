"""Every request at its legal extremes, over both transports: the loop is never silent long, memory stays flat."""

import asyncio
import gc
import json
import time
from dataclasses import dataclass, replace

import grpc
import psutil
import pytest
import pytest_asyncio
from support import plain_http
from support.bundles import make_encoder_bundle
from support.conditions import pulse
from support.every_way import table_settings
from support.fakes import loader_of
from support.transports import METHODS, listening, message_of
from turnscore_core.model_loader import load_scorers
from turnscore_load.extremes import Extreme, extremes
from turnscore_load.scenarios.hostile import open_conversation
from turnscore_models.bundle import starter_bundles
from turnscore_service.api.calls import decode
from turnscore_service.api.grpc.server import GrpcServer
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings
from turnscore_wire import DialogueRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")
# Promised in docs/security.md: CPU time of the loop's thread, from which a busy machine takes nothing.
LONGEST_SILENCE_SECONDS = 0.05
# What decoding 1 MiB of dialogue took on a Xeon (2026-11-22); a machine that takes longer has as much more.
_CONTROL_SECONDS = 0.0008
# Of memory, for each refused request. Chosen; it was 272 MiB for FED's own qualities before these were bounded.
MOST_GROWTH_BYTES = 1024 * 1024
# Legal by their characters: whether their tokens are too many is said where tokenizing ends before the deadline.
_BOUND_BY_TOKENS = "own qualities: 2"
_REPEATS = 3
# What leaks grows every time; an allocator that takes another arena grows once. What silences the loop does so each
# time; a machine that takes long to give the process its pages does so once.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Opened:
    """A ready service on the starter bundles and a tiny encoder, in this loop, and its transports' addresses."""

    runtime: Runtime
    http: str
    grpc: str


def more_extremes():
    """Dialogues that the load scenario does not know: each once took some part of the service long."""
    said = {
        "turns of 60 characters": [("user", "x" * 60), ("system", "x" * 60)] * 512,
        "a long question, then 512 answers": [("user", "xa")] * 512 + [("system", "xb")] * 512,
        "silence, then 512 answers": [("user", "")] * 512 + [("system", "xb")] * 512,
        "nothing that can be seen": [("user", "\u200b" * 300), ("system", "\u0301" * 300)] * 512,
        "nothing but emoji": [("user", "\U0001f44d" * 240), ("system", "\U0001f44d" * 240)] * 512,
        "nothing but control characters": [("user", "\x7f" * 950), ("system", "\x7f" * 950)] * 512,
    }
    dialogues = {name: [{"speaker": who, "text": text} for who, text in turns] for name, turns in said.items()}
    long = [{"speaker": ("user", "system")[number % 2], "text": f"x{number} a" * 150} for number in range(1024)]
    asked = [
        *((name, "score_dialogue", {"turns": turns}) for name, turns in dialogues.items()),
        ("rank: 64 on 1,024 turns", "rank", {"context": long, "candidates": [f"x{n}" * 30 for n in range(64)]}),
    ]
    bodies = [json.dumps({**fields, "deadline_ms": 1}, ensure_ascii=False).encode() for _, _, fields in asked]
    assert max(map(len, bodies)) <= Settings().limits.max_body_bytes
    return [
        Extreme(name=name, call=call, body=body, fields={**fields, "deadline_ms": 1})
        for (name, call, fields), body in zip(asked, bodies, strict=True)
    ]


@pytest.fixture(scope="module")
def every():
    return [*extremes(with_encoder=True), *more_extremes()]


@pytest.fixture(scope="module")
def slowness(every):
    """How many times slower than the machine of the figures this one is; at least 1."""
    control = next(each for each in every if each.name == "dialogue: 1,024 turns, 1 MiB")

    def once():
        began = time.thread_time()
        decode(DialogueRequest, control.body)
        return time.thread_time() - began

    return max(1.0, min(once() for _ in range(10)) / _CONTROL_SECONDS)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def opened(tmp_path_factory):
    encoder = tmp_path_factory.mktemp("extremes") / "encoder"
    make_encoder_bundle(encoder, token_limit=256)
    bundles = [*map(str, starter_bundles()), f"{encoder}/"]
    changes = {"cache": Settings().cache, "limits": Settings().limits, "models": bundles}
    settings = table_settings().model_copy(update=changes)
    runtime = Runtime(settings, loader_of(load_scorers(settings.loading())))  # with no memory taken ahead
    server = GrpcServer(runtime)
    runtime.start()
    await server.start()
    await runtime.wait_until_loaded()
    async with listening(create_app(runtime)) as address:
        yield Opened(runtime, f"http://{address}", f"127.0.0.1:{server.port}")
    await server.stop()
    await runtime.stop()


def over_http(opened, extreme):
    """The status of the reply."""
    if extreme.call == "conversations":
        return open_conversation(int(opened.http.rpartition(":")[2]), extreme)
    headers = {"content-type": "application/json"}
    reply = plain_http.post(f"{opened.http}/v1/{extreme.call}", content=extreme.body, headers=headers)
    return reply.status_code


def over_grpc(opened, extreme):
    """The status as HTTP would have it, more or less."""
    assert extreme.fields is not None
    with grpc.insecure_channel(opened.grpc) as channel:
        if extreme.call == "conversations":
            return _over_stream(channel, extreme.fields)
        message = message_of(extreme.call, extreme.fields).SerializeToString()
        method = channel.unary_unary(f"/turnscore.v1.TurnScorer/{METHODS[extreme.call]}")
        try:
            method(message, timeout=120)
        except grpc.RpcError as error:
            return 504 if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else 400
    return 200


def _over_stream(channel, fields):
    said = [fields, {"turn": {"speaker": "system", "text": "ok"}}]
    messages = [message_of("conversations", each).SerializeToString() for each in said]
    stream = channel.stream_stream("/turnscore.v1.TurnScorer/ScoreStream")(iter(messages), timeout=120)
    try:
        replies = list(stream)
    except grpc.RpcError:
        return 400
    return 200 if len(replies) == len(said) else 400


async def silence_of(ask):
    """The loop's longest, without the garbage collector's, which depends on the tests before this one."""
    gc.collect()
    gc.disable()
    try:
        async with pulse() as watched:
            await ask()
    finally:
        gc.enable()
    return watched.longest_seconds


@pytest.mark.parametrize("transport", [over_http, over_grpc])
async def test_no_request_at_its_extremes_silences_the_loop(opened, every, slowness, transport):
    limit, silences = LONGEST_SILENCE_SECONDS * slowness, {}
    for extreme in every:
        if transport is over_grpc and extreme.fields is None:
            continue
        for number in range(_TRIES):
            silences[extreme.name] = await _silence_beside(opened, _of_other_texts(extreme, number), transport)
            if silences[extreme.name] <= limit:
                break
    assert {name: round(each, 4) for name, each in silences.items() if each > limit} == {}


def _of_other_texts(extreme, number):
    """The same request of texts that the service has not seen: each began with an x."""
    body = extreme.body.replace(b'"x', b'"' + b"xyz"[number : number + 1])
    return replace(extreme, body=body, fields=None if extreme.fields is None else json.loads(body))


async def _silence_beside(opened, extreme, transport):
    """The loop's longest silence while it answers the request, which it answers or refuses as it should."""
    statuses = []

    async def ask():
        statuses.append(await asyncio.to_thread(transport, opened, extreme))

    silence = await silence_of(ask)
    answers = (200, 400, 504) if extreme.name.startswith(_BOUND_BY_TOKENS) else (200, 504)
    assert extreme.is_legal == (statuses[0] in answers), (extreme.name, statuses)
    return silence


async def test_what_is_refused_leaves_nothing_in_memory(opened, every):
    growth = {}
    for extreme in every:
        if extreme.is_legal and "512 of 200" not in extreme.name:
            continue
        for _ in range(_TRIES):
            growth[extreme.name] = await _growth(opened, extreme)
            if growth[extreme.name] <= MOST_GROWTH_BYTES:
                break
    assert {name: round(each / 2**20, 2) for name, each in growth.items() if each > MOST_GROWTH_BYTES} == {}


async def _growth(opened, extreme):
    """Bytes of resident memory for each of several such requests, after some that warm the allocator."""
    process = psutil.Process()
    for _ in range(2):
        await asyncio.to_thread(over_http, opened, extreme)
    gc.collect()
    before = process.memory_info().rss
    for _ in range(_REPEATS):
        await asyncio.to_thread(over_http, opened, extreme)
    gc.collect()
    return (process.memory_info().rss - before) / _REPEATS
