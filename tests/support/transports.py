"""The HTTP and gRPC APIs of one service on fakes, served in this process, and scripted ones."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import grpc
import httpx
import pytest
import uvicorn
from google.protobuf.any_pb2 import Any as AnyMessage
from turnscore_core.errors import CallerLeftError
from turnscore_service._patches.uvicorn_websocket import install_protocols
from turnscore_service.api.calls import decode
from turnscore_service.api.grpc.server import GrpcServer
from turnscore_service.api.http.app import create_app
from turnscore_service.api.http.exchange import serving_with
from turnscore_service.conversations.session import Received
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_service.settings.service import ConversationSettings, Settings
from turnscore_wire import ChatMessage, ConversationMessage, ErrorReply, ModelsReply
from turnscore_wire.v1 import to_fields, to_message, turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

from support.conditions import in_a_thread
from support.fakes import FakeScorer, candidates_are, loaded_fake, loader_of


@dataclass
class Transports:
    """Connections to the transports, and the addresses behind them."""

    http: httpx.AsyncClient
    grpc: grpc.aio.Channel
    websocket: str
    target: str


@asynccontextmanager
async def serve_transports(auth, scorer=None, **groups):
    """The transports of a service with these settings; `scorer` is the one it has."""
    async with (
        grpc_server(settings_with(auth=auth, **groups), fake=scorer or FakeScorer()) as (server, runtime),
        listening(create_app(runtime)) as address,
        httpx.AsyncClient(base_url=f"http://{address}", timeout=60, verify=False) as client,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield Transports(client, channel, f"ws://{address}/v1/conversations", f"127.0.0.1:{server.port}")


class QuietServer(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self):
        yield


def server_of(app, settings=None, *, port=0, **options):
    """A server configured as BentoML configures its own, with our protocols; `options` are more of uvicorn's."""
    own = {"lifespan": "off", "proxy_headers": False, "log_config": None, **options}
    with pytest.MonkeyPatch.context() as patched:  # other servers of this process have uvicorn's
        for known in (uvicorn.config.HTTP_PROTOCOLS, uvicorn.config.WS_PROTOCOLS):
            patched.setitem(known, "auto", known["auto"])
        install_protocols(serving_with(settings or Settings()))
        (config := uvicorn.Config(app, host="127.0.0.1", port=port, **own)).load()
    return QuietServer(config)


@asynccontextmanager
async def listening(app, settings=None, *, port=0, **options):
    """The address as `127.0.0.1:port` of such a server."""
    server = server_of(app, settings, port=port, **options)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0)
    [listener] = server.servers
    host, taken = listener.sockets[0].getsockname()
    try:
        yield f"{host}:{taken}"
    finally:
        server.should_exit = True
        await serving


@contextmanager
def served_app(settings=None, *, tls=None, **scorers):
    """The URL of HTTP and the target of gRPC of a ready service in a thread; `tls` are options of the HTTP server.

    `settings` come from `settings_with`.
    """

    @asynccontextmanager
    async def serve():
        async with (
            grpc_server(settings, **scorers) as (server, runtime),
            listening(create_app(runtime), settings, **(tls or {})) as address,
        ):
            yield f"{'https' if tls else 'http'}://{address}", f"127.0.0.1:{server.port}"

    with in_a_thread(serve()) as addresses:
        yield addresses


def settings_with(**groups):
    """Settings whose gRPC listens on a free port."""
    return Settings.model_validate({**groups, "grpc": {"port": 0, **groups.get("grpc", {})}})


@asynccontextmanager
async def grpc_server(settings=None, candidates=None, **scorers):
    """A started server on fakes; `settings` come from `settings_with`."""
    async with ready_runtime(settings or settings_with(), candidates, **scorers) as runtime:
        server = GrpcServer(runtime)
        await server.start()
        try:
            yield server, runtime
        finally:
            await server.stop()


@asynccontextmanager
async def grpc_stub(settings=None, candidates=None, **scorers):
    """The generated stub, on a connection to such a server."""
    async with (
        grpc_server(settings, candidates, **scorers) as (server, runtime),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield TurnScorerStub(channel), runtime


def http_client(runtime):
    """A client of the service's HTTP API, in this process."""
    transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://turnscore")


@asynccontextmanager
async def both_transports(settings=None, candidates=None, **scorers):
    """A client over HTTP and the stub of gRPC."""
    async with grpc_stub(settings, candidates, **scorers) as (stub, runtime), http_client(runtime) as client:
        yield client, stub


async def refusal(call):
    """What a call that must fail ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asyncio.wait_for(call, 60)
    return refused.value


def error_of(error):
    """What the trailers of an unsuccessful call say."""
    trailers = dict(error.trailing_metadata() or ())
    status = turnscore_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    [detail] = status.details
    assert isinstance(detail, AnyMessage)
    reply = turnscore_pb2.ErrorReply()
    assert detail.Unpack(reply)
    told = ErrorReply.model_validate(to_fields(reply))
    assert trailers["x-request-id"] == told.request_id
    return told


MODELS = to_message(ModelsReply.model_validate({"request_id": "r", "models": [], "limits": {}})).SerializeToString()


@asynccontextmanager
async def scripted(*answers):
    """A server that gives these answers, one a call and the last one for ever, and tells the calls' metadata."""
    script, calls = list(answers), []

    async def respond(data, context):
        calls.append(dict(context.invocation_metadata()))
        answer = script.pop(0) if len(script) > 1 else script[0]
        if not isinstance(answer, bytes):
            await context.abort(*answer)
        return answer

    class AnyCall(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(respond)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((AnyCall(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", calls
    await server.stop(None)


def bare(code, *trailers, details="a library's words"):
    """A status without details, as gRPC libraries and proxies give it."""
    return code, details, trailers


METHODS = {
    "score": "Score", "score_batch": "ScoreBatch", "score_dialogue": "ScoreDialogue", "rank": "Rank",
    "similarity": "Similarity",
}  # fmt: skip
_MESSAGES = {
    "score": turnscore_pb2.ScoreRequest, "score_batch": turnscore_pb2.BatchRequest,
    "score_dialogue": turnscore_pb2.DialogueRequest, "rank": turnscore_pb2.RankRequest,
    "similarity": turnscore_pb2.SimilarityRequest, "conversations": turnscore_pb2.ConversationMessage,
}  # fmt: skip


def message_of(call, fields):
    """The message with the fields, set as a caller with generated code sets them.

    Raises TypeError, ValueError, AttributeError or KeyError where no message can hold them.
    """
    return _MESSAGES[call](**_as_arguments(fields))


def _as_arguments(fields):
    if isinstance(fields, list):
        return [_as_arguments(each) for each in fields]
    if not isinstance(fields, dict):
        return fields
    arguments = {name: _as_arguments(value) for name, value in fields.items() if name != "options"}
    if "speaker" in arguments:
        arguments["speaker"] = f"SPEAKER_{arguments['speaker'].upper()}"
    if "cache" in arguments:
        arguments["cache"] = f"CACHE_MODE_{arguments['cache'].upper()}"
    if isinstance(fields.get("messages"), list):
        arguments["messages"] = [to_message(ChatMessage.model_validate(each)) for each in fields["messages"]]
    if "options" in fields:
        holder = turnscore_pb2.ScoreRequest()
        for name, options in fields["options"].items():
            holder.options[name].update(options)
        arguments["options"] = holder.options
    return arguments


class HeldChannel:
    """A channel whose caller is the test: it says, hears, and leaves."""

    def __init__(self):
        self.inbox = asyncio.Queue()
        self.replies = asyncio.Queue()
        self.room = asyncio.Event()
        self.room.set()
        self.read = 0

    async def receive(self):
        received = await self.inbox.get()
        if isinstance(received, CallerLeftError):
            raise received
        self.read += 1
        return received

    async def send(self, reply):
        await self.room.wait()
        self.replies.put_nowait(reply)

    def say(self, speaker, text, **fields):
        self.tell({"turn": {"speaker": speaker, "text": text, **fields}})

    def tell(self, message):
        read = ConversationMessage.model_validate(message)
        self.inbox.put_nowait(Received(100, lambda: read))

    def babble(self):
        """Sends what is no message."""
        self.inbox.put_nowait(Received(3, lambda: decode(ConversationMessage, b"oh!")))

    async def hear(self):
        return await asyncio.wait_for(self.replies.get(), 60)


def let_go(scorers):
    """Lets fakes go on that a test held: one that failed must not leave a thread waiting."""
    for scorer in scorers:
        if isinstance(scorer, FakeScorer):
            scorer.gate.set()
            scorer.tokenizer_gate.set()


@asynccontextmanager
async def ready_runtime(settings=None, candidates=None, loader=None, **scorers):
    """A service with these scorers, or those of a loader; whatever the test held back is let go at its end."""
    loaded = {name: loaded_fake(scorer, name) for name, scorer in scorers.items()}
    versions = candidates or CandidateVersions()
    runtime = Runtime(settings or Settings(), loader or loader_of(loaded))
    with candidates_are(versions):
        runtime.start()
        await runtime.wait_until_loaded()
    try:
        yield runtime
    finally:
        let_go([*scorers.values(), *(each.loaded.scorer for each in (*versions.shadows, *versions.splits))])
        await runtime.stop()


@asynccontextmanager
async def talking(settings=None, candidates=None, **scorers):
    async with ready_runtime(settings, candidates, **(scorers or {"fake": FakeScorer()})) as runtime:
        channel = HeldChannel()
        holding = asyncio.create_task(runtime.conversations.hold(runtime.pipeline, channel, "r-1"))
        yield channel, holding, runtime
        if not holding.done():
            channel.inbox.put_nowait(None)
            await asyncio.wait_for(holding, 60)


def bounded(**bounds):
    return Settings(conversations=ConversationSettings(**bounds))


@asynccontextmanager
async def listening_service(settings=None, **scorers):
    """The address of HTTP behind the real server, of a service with these scorers or one fake; and its runtime."""
    async with (
        ready_runtime(settings, **(scorers or {"fake": FakeScorer()})) as runtime,
        listening(create_app(runtime), settings) as address,
    ):
        yield address, runtime
