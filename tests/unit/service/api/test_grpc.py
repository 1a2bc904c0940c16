"""gRPC by itself: bytes, deadlines, callers that leave, sizes; and the server: health, ports, draining, probes."""

import asyncio
import shutil
import socket
import ssl
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from pydantic import ValidationError
from support.certificates import certificate, private_key
from support.conditions import until
from support.fakes import FakeScorer, loader_of, sample
from support.transports import error_of, grpc_server, grpc_stub, refusal, settings_with
from turnscore_service.api.grpc.endpoints import SERVICE
from turnscore_service.api.grpc.server import GrpcServer, UnusableCertificateError
from turnscore_service.lifecycle.process import listens_elsewhere, why_not
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings
from turnscore_wire import Limits, describe_refusal
from turnscore_wire.v1 import turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub


def requests(call, code):
    return sample("requests_total", transport="grpc", call=call, code=code)


def raw(channel, method="Score"):
    """A call that sends and receives plain bytes."""
    return channel.unary_unary(f"/{SERVICE}/{method}")


NO_MESSAGES = [
    b"\xff",
    b"\x2a\x02\xff\xff",  # field 5, response, with bytes that are not UTF-8
    b"\x12\xc8\x01" + b"\x0a" * 200,
]


@pytest.mark.parametrize("data", NO_MESSAGES)
async def test_bytes_that_are_no_message_are_refused_and_counted(data):
    before = requests("score", "invalid_request")
    async with (
        grpc_server(fake=FakeScorer()) as (server, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        told = error_of(await refusal(raw(channel)(data)))
    assert (told.error.code, told.error.field) == ("invalid_request", "body")
    assert requests("score", "invalid_request") == before + 1


def withheld(channel):
    """A call whose message never comes: to the server it looks like any other."""
    return channel.stream_unary(f"/{SERVICE}/Score")()


async def test_a_call_without_its_message_ends_like_a_body_that_does_not_come():
    before = requests("score", "deadline_exceeded")
    async with (
        grpc_server(settings_with(default_deadline_ms=200), fake=FakeScorer()) as (server, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        told = error_of(await refusal(withheld(channel)))
    assert (told.error.code, told.error.field) == ("deadline_exceeded", "body")
    assert requests("score", "deadline_exceeded") == before + 1


async def test_calls_beyond_the_bound_are_refused_over_however_many_connections():
    async with AsyncExitStack() as stack:
        settings = settings_with(grpc={"max_concurrent_calls": 3})
        server, _ = await stack.enter_async_context(grpc_server(settings, fake=FakeScorer()))
        options = [("grpc.use_local_subchannel_pool", 1)]
        target = f"127.0.0.1:{server.port}"
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, options=options)) for _ in range(4)
        ]
        waiting = [withheld(channel) for channel in channels[:3]]
        await until(lambda: server._endpoints.in_flight.count == 3)
        assert (await refusal(raw(channels[3])(b""))).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in waiting:
            call.cancel()
        await until(lambda: server._endpoints.in_flight.count == 0)
        assert await raw(channels[3])(A_TURN.SerializeToString())


async def test_options_nested_too_deeply_are_refused():
    request = turnscore_pb2.ScoreRequest(response="a")
    inner = request.options["fake"]
    for _ in range(200):
        inner = inner.get_or_create_struct("known")
    async with grpc_stub(fake=FakeScorer()) as (stub, _):
        told = error_of(await refusal(stub.Score(request)))
    assert (told.error.code, told.error.field) == ("invalid_request", "body")


async def test_a_message_beyond_the_limit_is_too_large():
    settings = settings_with(limits=Limits(max_body_bytes=300))
    async with grpc_stub(settings, fake=FakeScorer()) as (stub, _):
        error = await refusal(stub.Score(turnscore_pb2.ScoreRequest(response="a " * 200)))
    assert error.code() == grpc.StatusCode.OUT_OF_RANGE
    assert (error_of(error).error.code, error_of(error).error.field) == ("too_large", "body")


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_the_transport_breaks_off_what_is_far_too_large_before_it_is_decompressed(compression):
    settings = settings_with(grpc={"max_message_bytes": 1000})
    async with grpc_stub(settings, fake=FakeScorer()) as (stub, _):
        error = await refusal(stub.Score(turnscore_pb2.ScoreRequest(response="a" * 100_000), compression=compression))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.Score(A_TURN)).scores["fake"].value == 0.02


# The deadline leaves time for the call to arrive on a busy machine.
@pytest.mark.parametrize(("timeout", "code"), [(3.0, "deadline_exceeded"), (None, "departed")])
async def test_work_of_a_call_that_is_cut_is_dropped_and_counted_by_why(timeout, code):
    scorer, before = FakeScorer(), requests("score", code)
    async with grpc_stub(fake=scorer) as (stub, _):
        scorer.gate.clear()
        first = stub.Score(A_TURN)
        await asyncio.to_thread(scorer.started.wait)
        request = turnscore_pb2.ScoreRequest(response="never computed " * 5, deadline_ms=60_000)
        cut = stub.Score(request, timeout=timeout)
        await until(lambda: sample("items_in_flight", scorer="fake") == 2)
        if timeout is None:
            cut.cancel()
        await until(lambda: requests("score", code) == before + 1)
        scorer.gate.set()
        assert (await first).scores["fake"].value == 0.02
        assert (await stub.Score(turnscore_pb2.ScoreRequest(response="a"))).scores["fake"].value == 0.01
    assert scorer.batches == [[2], [1]]


async def test_a_requests_own_deadline_holds_where_its_call_has_more_time():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with grpc_stub(fake=scorer) as (stub, _):
        request = turnscore_pb2.ScoreRequest(response="a", deadline_ms=200)
        assert error_of(await refusal(stub.Score(request, timeout=60))).error.code == "deadline_exceeded"
        scorer.gate.set()


SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
A_TURN = turnscore_pb2.ScoreRequest(response="one two")


def channel_to(server):
    """A connection of its own: channels to one address would share theirs."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=[("grpc.use_local_subchannel_pool", 1)])


async def health_of(channel, service=""):
    reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    return int(reply.status)


async def test_health_tells_what_readyz_tells_from_start_to_drain():
    runtime = Runtime(settings_with(), loader_of({}))
    server = GrpcServer(runtime)
    await server.start()
    async with channel_to(server) as channel:
        watched = []

        async def watch():
            request = health_pb2.HealthCheckRequest(service=SERVICE)
            async for reply in health_pb2_grpc.HealthStub(channel).Watch(request):
                watched.append(reply.status)  # noqa: PERF401  # looked at while it grows

        watching = asyncio.create_task(watch())
        await until(lambda: watched == [NOT_SERVING])
        assert [await health_of(channel, name) for name in ("", SERVICE)] == [NOT_SERVING] * 2
        runtime.start()
        await runtime.wait_until_loaded()
        await until(lambda: watched == [NOT_SERVING, SERVING])
        assert [await health_of(channel, name) for name in ("", SERVICE)] == [SERVING] * 2
        runtime.health.lose("fake")
        await until(lambda: watched == [NOT_SERVING, SERVING, NOT_SERVING])
        runtime.health.regain("fake")
        await until(lambda: watched[3:] == [SERVING])
        runtime.begin_drain()
        await until(lambda: watched[4:] == [NOT_SERVING])
        await server.stop()
        with pytest.raises(grpc.aio.AioRpcError):
            await watching
    await runtime.stop()


async def test_reflection_can_be_turned_off():
    async with grpc_server(settings_with(grpc={"reflection": False}), fake=FakeScorer()) as (server, _):
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel, pytest.raises(grpc.RpcError) as refused:
            await asyncio.to_thread(lambda: list(ProtoReflectionDescriptorDatabase(channel).get_services()))
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.fixture
def taken():
    """A port on which somebody else listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening


async def test_a_busy_port_is_told_in_a_sentence_and_taken_once_it_is_free(taken, caplog):
    port = taken.getsockname()[1]
    async with grpc_server(settings_with(grpc={"port": port}), fake=FakeScorer()) as (server, runtime):
        sentence = runtime.health.not_ready().message
        assert sentence.startswith(f"gRPC cannot listen on 127.0.0.1, port {port}: address already in use;")
        assert "TURNSCORE_GRPC__PORT" in sentence
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [sentence]
        assert not runtime.health.is_ready
        taken.close()
        await until(lambda: runtime.health.is_ready)
        async with channel_to(server) as channel:
            assert (await TurnScorerStub(channel).Score(A_TURN)).scores["fake"].value == 0.02


def shareable(port=0):
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    return listening


async def test_a_stranger_that_shares_the_port_is_seen():
    with closing(shareable()) as ours:
        port = ours.getsockname()[1]
        listen = (
            "import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
            f"s.bind(('127.0.0.1', {port})); s.listen(); print('listening', flush=True); sys.stdin.read()"
        )
        # A child of a child: it has another parent than this process, as the worker of another service has.
        start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {listen!r}])"
        stranger = await asyncio.create_subprocess_exec(
            "python", "-c", start, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        await stranger.stdout.readline()
        assert listens_elsewhere("127.0.0.1", port)
        assert why_not("127.0.0.1", port, is_shared=True) == "another program listens there"
        stranger.stdin.close()
        await stranger.wait()
        assert not listens_elsewhere("127.0.0.1", port)


async def test_a_stopping_server_answers_what_is_in_flight_and_takes_no_more():
    scorer = FakeScorer()
    scorer.gate.clear()
    async with grpc_server(fake=scorer) as (server, _), channel_to(server) as channel:
        asked = TurnScorerStub(channel).Score(A_TURN)
        await asyncio.to_thread(scorer.started.wait)
        stopping = asyncio.create_task(server.stop())
        await until(lambda: why_not("127.0.0.1", server.port or 0, is_shared=False) is None)
        async with channel_to(server) as later:
            assert (await refusal(TurnScorerStub(later).Score(A_TURN))).code() == grpc.StatusCode.UNAVAILABLE
        scorer.gate.set()
        assert (await asked).scores["fake"].value == 0.02
        await stopping


async def test_a_stopping_server_ends_conversations_in_which_nothing_is_due():
    async with grpc_server(fake=FakeScorer()) as (server, _), channel_to(server) as channel:
        stream = TurnScorerStub(channel).ScoreStream()
        await stream.initial_metadata()
        async with asyncio.timeout(60):
            await server.stop()
        ended = await refusal(stream.read())
    assert error_of(ended).error.code == "not_ready"


async def test_a_connection_that_does_not_answer_probes_is_closed():
    settings = settings_with(grpc={"keepalive_seconds": 0.05, "keepalive_timeout_seconds": 0.05})
    async with grpc_server(settings, fake=FakeScorer()) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        # HTTP/2's preface, empty SETTINGS and their acknowledgement (RFC 9113, 3.4): a caller that then falls silent.
        settings_and_ack = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) + bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings_and_ack)
        async with asyncio.timeout(60):
            with suppress(ConnectionResetError):
                await reader.read()
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ({"tls_cert_file": __file__}, "tls_cert_file and tls_key_file go together"),
        ({"tls_client_ca_file": __file__}, "tls_client_ca_file needs tls_cert_file and tls_key_file"),
    ],
)
def test_settings_that_make_no_sense_are_refused(group, sentence):
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"grpc": group})
    assert describe_refusal(refused.value)[1] == sentence


TLS = {"tls_cert_file": certificate("server"), "tls_key_file": private_key("server")}


async def shown_certificate(server):
    context = ssl.create_default_context(cafile=str(certificate("authority")))
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("localhost", server.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


def der(name):
    return ssl.PEM_cert_to_DER_cert(certificate(name).read_text())


async def test_renewed_files_are_taken_up_and_broken_ones_are_not(tmp_path, caplog):
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    shutil.copyfile(certificate("server"), cert)
    shutil.copyfile(private_key("server"), key)
    settings = settings_with(grpc={"tls_cert_file": cert, "tls_key_file": key})
    async with grpc_server(settings, fake=FakeScorer()) as (server, _):
        assert await shown_certificate(server) == der("server")
        shutil.copyfile(certificate("renewed_server"), cert)  # its key is not there yet: the pair does not fit
        assert await shown_certificate(server) == der("server")
        assert await shown_certificate(server) == der("server")
        assert [each.message.split(":")[0] for each in caplog.records if each.levelname == "ERROR"] == [
            "keeping the previous certificate"
        ]
        shutil.copyfile(private_key("renewed_server"), key)
        assert await shown_certificate(server) == der("renewed_server")


NO_CERTIFICATES = [
    {**TLS, "tls_key_file": private_key("caller")},
    {**TLS, "tls_cert_file": private_key("server")},
    {**TLS, "tls_client_ca_file": Path(__file__)},
]


@pytest.mark.parametrize("group", NO_CERTIFICATES)
def test_files_that_make_no_certificate_end_the_start_by_name(group):
    settings = Settings.model_validate({"grpc": group})
    with pytest.raises(UnusableCertificateError, match="server"):
        GrpcServer(Runtime(settings))
