"""TLS of the gRPC door: who gets in, and that renewed files are taken up without a restart."""

import asyncio
import shutil
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.certificates import certificate, private_key
from support.fakes import FakeScorer
from support.grpc_serving import grpc_server, settings_with
from turnscore_service.api.grpc.server import GrpcServer, UnusableCertificateError
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings
from turnscore_wire.v1 import turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

AUTHORITY = certificate("authority").read_bytes()
TLS = {"tls_cert_file": certificate("server"), "tls_key_file": private_key("server")}
MUTUAL = {**TLS, "tls_client_ca_file": certificate("authority")}


async def score_with(server: GrpcServer, credentials: grpc.ChannelCredentials | None) -> float:
    target, own = f"localhost:{server.port}", [("grpc.use_local_subchannel_pool", 1)]
    channel = (
        grpc.aio.insecure_channel(target, options=own)
        if credentials is None
        else grpc.aio.secure_channel(target, credentials, options=own)
    )
    async with channel:
        reply = await TurnScorerStub(channel).Score(turnscore_pb2.ScoreRequest(response="one two"), timeout=30)
    return float(reply.scores["fake"].value)


def trusting(authority: bytes = AUTHORITY, caller: str | None = None) -> grpc.ChannelCredentials:
    if caller is None:
        return grpc.ssl_channel_credentials(authority)
    return grpc.ssl_channel_credentials(authority, private_key(caller).read_bytes(), certificate(caller).read_bytes())


async def assert_turned_away(server: GrpcServer, credentials: grpc.ChannelCredentials | None) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await score_with(server, credentials)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_a_caller_that_trusts_the_authority_is_served():
    async with grpc_server(settings_with(grpc=TLS), fake=FakeScorer()) as (server, _):
        assert await score_with(server, trusting()) == 0.02


async def test_plain_text_is_turned_away_from_a_tls_door():
    async with grpc_server(settings_with(grpc=TLS), fake=FakeScorer()) as (server, _):
        await assert_turned_away(server, None)


async def test_a_caller_that_trusts_another_authority_turns_away():
    async with grpc_server(settings_with(grpc=TLS), fake=FakeScorer()) as (server, _):
        await assert_turned_away(server, trusting(certificate("stranger_authority").read_bytes()))


async def test_mutual_tls_serves_only_whom_the_authority_signed():
    async with grpc_server(settings_with(grpc=MUTUAL), fake=FakeScorer()) as (server, _):
        assert await score_with(server, trusting(caller="caller")) == 0.02
        await assert_turned_away(server, trusting())
        await assert_turned_away(server, trusting(caller="stranger"))


async def shown_certificate(server: GrpcServer) -> bytes:
    context = ssl.create_default_context(cafile=str(certificate("authority")))
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("localhost", server.port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


def der(name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate(name).read_text())


async def test_renewed_files_are_taken_up_and_broken_ones_are_not(tmp_path: Path, caplog: pytest.LogCaptureFixture):
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
            "the certificate stays as it was"
        ]
        shutil.copyfile(private_key("renewed_server"), key)
        assert await shown_certificate(server) == der("renewed_server")


@pytest.mark.parametrize(
    "group",
    [
        {**TLS, "tls_key_file": private_key("caller")},
        {**TLS, "tls_cert_file": private_key("server")},
        {**TLS, "tls_client_ca_file": Path(__file__)},
    ],
)
def test_files_that_make_no_certificate_end_the_start_by_name(group: dict[str, Any]):
    settings = Settings.model_validate({"grpc": group})
    with pytest.raises(UnusableCertificateError, match="server"):
        GrpcServer(Runtime(settings))
