"""`make serve`: what its variables become; TLS at both transports of that service, two workers, and SIGTERM.

It runs next to another service of the same user.
"""

import json
import os
import re
import shlex
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import httpx
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.certificates import certificate, private_key
from support.conditions import wait_until
from support.fakes import hear, say
from support.files import ROOT
from support.processes import running_service
from turnscore_client import ConnectionFailedError, Tls, TurnScoreClient, TurnScoreError, TurnScoreGrpcClient
from turnscore_wire.v1 import turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

FILES = {"TLS_CERT": certificate("server"), "TLS_KEY": private_key("server"), "TLS_CLIENT_CA": certificate("authority")}
OWN = {"cert_file": certificate("caller"), "key_file": private_key("caller")}


def command_of(*variables):
    """The variables and the options that `make serve` would start the service with."""
    outside = {name: text for name, text in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "-n", "--no-print-directory", "serve", *variables]
    done = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
    words = shlex.split(done.stdout[done.stdout.index("TURNSCORE_GRPC__HOST") :].replace("\\\n", " "))
    start = words.index("serve") - 1
    return dict(word.split("=", 1) for word in words[:start]), words[words.index("--port") + 2 :]


def over_https(caller="caller"):
    context = ssl.create_default_context(cafile=str(certificate("authority")))
    if caller is not None:
        context.load_cert_chain(certificate(caller), private_key(caller))
    return context


def secure_channel(service):
    """A connection of its own: channels to one address would share theirs."""
    credentials = grpc.ssl_channel_credentials(
        certificate("authority").read_bytes(), private_key("caller").read_bytes(), certificate("caller").read_bytes()
    )
    own = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(service.grpc_target, credentials, options=own)


def is_serving(channel):
    reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=60)
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def wait_for_workers(guarded, begun):
    """Until so many workers have said that they serve: one that is ready may have all connections until then."""
    wait_until(lambda: sum('"serving"' in line for line in guarded.log.read_text().splitlines()) == begun)
    with ExitStack() as opened:
        channels = [opened.enter_context(secure_channel(guarded)) for _ in range(24)]
        wait_until(lambda: all(is_serving(channel) for channel in channels))


@pytest.fixture(scope="module")
def guarded(service, tmp_path_factory):
    """As `make serve` starts it with certificates, and two workers on one gRPC port; the last test here ends it."""
    environment, options = command_of(*(f"{name}={path}" for name, path in FILES.items()))
    del environment["TURNSCORE_GRPC__PORT"]
    environment |= {"TURNSCORE_WORKERS": "2", "TURNSCORE_MODELS": "engagement", "TURNSCORE_DRAIN_SECONDS": "4"}
    environment["BENTOML_HOME"] = str(service.log.parent / "bentoml")
    folder = tmp_path_factory.mktemp("guarded")
    with running_service(folder, environment=environment, options=options, tls=over_https()) as started:
        wait_for_workers(started, 2)
        yield started


def test_without_certificates_everything_is_plain():
    environment, options = command_of("HOST=127.0.0.2")
    assert environment == {"TURNSCORE_GRPC__HOST": "127.0.0.2", "TURNSCORE_GRPC__PORT": "50051"}
    assert options == []


@pytest.mark.e2e
def test_the_last_worker_that_is_ready_names_the_address_once(guarded):
    lines = [json.loads(line) for line in guarded.log.read_text().splitlines()]
    assert sum(each["message"] == "serving" for each in lines) == 2
    assert [each for each in lines if "url" in each] == [lines[-1]]
    assert (lines[-1]["message"], lines[-1]["url"]) == (f"turnscore is ready: {guarded.url}", guarded.url)


@pytest.mark.e2e
def test_both_transports_take_the_certificates_and_callers_whom_the_authority_signed(guarded):
    trusted = Tls(ca_file=certificate("authority"), **OWN)
    with TurnScoreClient(guarded.url, tls=trusted, timeout_seconds=60) as client:
        assert client.score(response="ok").scores
        with client.conversation() as conversation:
            assert conversation.say("system", "ok").scores
    with TurnScoreGrpcClient(guarded.grpc_target, tls=trusted, timeout_seconds=60) as client:
        assert client.score(response="ok").scores


@pytest.mark.e2e
def test_neither_transport_serves_a_caller_whom_the_authority_did_not_sign(guarded):
    unsigned = Tls(ca_file=certificate("authority"))
    with TurnScoreClient(guarded.url, tls=unsigned, max_retries=0) as client, pytest.raises(ConnectionFailedError):
        client.models()
    with TurnScoreGrpcClient(guarded.grpc_target, tls=unsigned, max_retries=0) as client, pytest.raises(TurnScoreError):
        client.models()
    with pytest.raises(httpx.TransportError):
        httpx.get(guarded.url + "/livez", verify=over_https("stranger"))


def connections_of(worker, port):
    return sum(
        each.status == psutil.CONN_ESTABLISHED and each.laddr.port == port for each in worker.net_connections("tcp")
    )


@pytest.mark.e2e
def test_two_workers_share_the_grpc_port(guarded):
    port = int(guarded.grpc_target.rpartition(":")[2])
    with ExitStack() as opened:
        channels = [opened.enter_context(secure_channel(guarded)) for _ in range(24)]
        assert all(is_serving(channel) for channel in channels)
        workers = psutil.Process(guarded.process.pid).children()

        def shares():
            return [count for worker in workers if (count := connections_of(worker, port))]

        wait_until(lambda: sum(shares()) == len(channels))  # closed ones of before may take a moment to go
        assert len(shares()) == 2


def metrics_of(service):
    return httpx.get(service.url + "/metrics", verify=over_https(), timeout=60).text


def scored(service):
    """Turns that the service says it has scored for engagement."""
    found = re.findall(r"^turnscore_items_total\{(.*)\} (\S+)$", metrics_of(service), re.MULTILINE)
    wanted = {'outcome="scored"', 'scorer="engagement"'}
    return sum(float(count) for labels, count in found if wanted <= set(labels.split(",")))


def score(service, response, *scorers):
    body = {"response": response, "scorers": ["engagement", *scorers], "cache": "bypass"}
    answer = httpx.post(service.url + "/v1/score", json=body, verify=over_https(), timeout=60)
    assert answer.status_code == 200


def is_worker(process):
    try:
        return "--fd" in process.cmdline()
    except psutil.Error:  # it ended meanwhile
        return False


def workers_of(service):
    return [each.pid for each in psutil.Process(service.process.pid).children() if is_worker(each)]


@pytest.mark.e2e
def test_a_second_service_leaves_the_first_alone_and_its_killed_worker_is_replaced(service, guarded):
    before = scored(service)
    score(service, "one")
    score(service, "two", "quality")
    assert scored(service) == before + 2
    assert ['scorer="quality"' in metrics_of(each) for each in (service, guarded)] == [True, False]
    score(guarded, "three")
    assert scored(service) == before + 2
    killed, other = workers_of(guarded)
    psutil.Process(killed).kill()
    wait_until(lambda: len(now := workers_of(guarded)) == 2 and killed not in now)
    wait_for_workers(guarded, 3)
    assert other in workers_of(guarded)
    score(service, "four")
    assert scored(service) == before + 3


@pytest.mark.e2e
def test_sigterm_turns_readiness_and_health_off_and_loses_nothing(guarded):
    items = [{"response": f"turn number {number} of a long batch"} for number in range(64)]
    trusted = Tls(ca_file=certificate("authority"), **OWN)
    url, context = guarded.url.replace("https", "wss") + "/v1/conversations", over_https()
    with (
        secure_channel(guarded) as channel,
        TurnScoreClient(guarded.url, tls=trusted, timeout_seconds=60) as client,
        ThreadPoolExecutor(1) as thread,
        connect(url, ssl=context) as conversation,
    ):
        client.models()  # the connection is open
        assert say(conversation, "user", "hi").ack
        stub = TurnScorerStub(channel)
        over_grpc = stub.ScoreBatch.future(turnscore_pb2.BatchRequest(items=items), timeout=60)
        stub.Models(turnscore_pb2.ModelsRequest())  # behind the batch on the same connection: it has arrived
        over_http = thread.submit(client.score_batch, items)
        guarded.process.terminate()
        wait_until(lambda: not is_serving(channel))
        wait_until(lambda: httpx.get(guarded.url + "/readyz", verify=context).status_code == 503)
        assert hear(conversation).draining.ends_in_ms == 4_000
        with TurnScoreClient(guarded.url, tls=trusted, timeout_seconds=60) as late:
            assert late.score(response="still answered while draining").scores
        assert "engagement" in stub.Score(turnscore_pb2.ScoreRequest(response="so is this"), timeout=60).scores
        assert say(conversation, "system", "and this").scored.scores
        assert hear(conversation).error.code == "not_ready"
        with pytest.raises(ConnectionClosed, match="4503"):
            conversation.recv(60)
        assert len(over_grpc.result(60).results) == len(over_http.result(60).results) == 64
    assert guarded.process.wait(120) == 0
