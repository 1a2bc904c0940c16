"""The real service's gRPC door: the scores of the HTTP door, two workers on one port, and SIGTERM."""

import re
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import httpx
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support import plain_http
from support.certificates import certificate, private_key
from support.conditions import wait_until
from support.processes import RunningService, running_service
from turnscore_client import TurnScoreClient
from turnscore_wire.v1 import to_fields, turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text()
DIALOGUE = [("user", "hi, what did you do today?"), ("system", "i hiked up a volcano. ever been on one?")]


@pytest.fixture
def stub(service: RunningService) -> Iterator[TurnScorerStub]:
    with grpc.insecure_channel(service.grpc_target) as channel:
        yield TurnScorerStub(channel)


def turns() -> list[dict[str, str]]:
    return [{"speaker": f"SPEAKER_{speaker.upper()}", "text": text} for speaker, text in DIALOGUE]


def test_every_scorer_gives_the_scores_of_the_http_door(client: TurnScoreClient, stub: TurnScorerStub):
    over_http = client.score(context=DIALOGUE, response="no, tell me more!")
    request = turnscore_pb2.ScoreRequest(context=turns(), response="no, tell me more!")
    over_grpc = to_fields(stub.Score(request))["scores"]
    assert {name: score.value for name, score in over_http.scores.items()} == {
        name: score["value"] for name, score in over_grpc.items()
    }
    assert {name: score.details for name, score in over_http.scores.items()} == {
        name: score["details"] for name, score in over_grpc.items()
    }


def test_a_dialogue_and_a_ranking_are_scored(stub: TurnScorerStub):
    dialogue = stub.ScoreDialogue(turnscore_pb2.DialogueRequest(turns=turns(), scorers=["engagement"]))
    assert [turn.index for turn in dialogue.turns] == [1]
    ranked = stub.Rank(turnscore_pb2.RankRequest(candidates=["ok.", DIALOGUE[1][1]], scorers=["engagement"]))
    assert [candidate.index for candidate in ranked.candidates] == [1, 0]


def test_a_stream_is_scored_as_it_is_said(stub: TurnScorerStub):
    said = [turnscore_pb2.ConversationMessage(turn=turn) for turn in turns()]
    heard, scored = stub.ScoreStream(iter(said))
    assert heard.heard.index == 0
    models = stub.Models(turnscore_pb2.ModelsRequest()).models
    assert set(scored.scored.scores) == {model.scorer for model in models if model.is_default} != {"fed"}


def test_calls_are_counted_by_their_door(service: RunningService, stub: TurnScorerStub):
    stub.Models(turnscore_pb2.ModelsRequest())
    metrics = plain_http.get(service.url + "/metrics").text
    assert 'turnscore_requests_total{call="models",code="ok",door="grpc"}' in metrics


@pytest.mark.parametrize("snippet", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_every_snippet_of_the_page_runs(service: RunningService, snippet: str, capsys: pytest.CaptureFixture[str]):
    exec(snippet.replace("localhost:50051", service.grpc_target), {})  # the page is ours
    assert capsys.readouterr().out


def connections_of(worker: psutil.Process, port: int) -> int:
    return sum(
        each.status == psutil.CONN_ESTABLISHED and each.laddr.port == port for each in worker.net_connections("tcp")
    )


CERTIFICATES = {
    "TURNSCORE_GRPC__TLS_CERT_FILE": certificate("server"),
    "TURNSCORE_GRPC__TLS_KEY_FILE": private_key("server"),
    "TURNSCORE_GRPC__TLS_CLIENT_CA_FILE": certificate("authority"),
}
OVER_HTTPS = ("--ssl-certfile", certificate("server"), "--ssl-keyfile", private_key("server"))
MUTUALLY = ("--ssl-ca-certs", certificate("authority"), "--ssl-cert-reqs", ssl.CERT_REQUIRED)


def over_https(caller: str | None = "caller") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate("authority")))
    if caller is not None:
        context.load_cert_chain(certificate(caller), private_key(caller))
    return context


def secure_channel(service: RunningService) -> grpc.Channel:
    """A connection of its own: channels to one address would share theirs."""
    credentials = grpc.ssl_channel_credentials(
        certificate("authority").read_bytes(), private_key("caller").read_bytes(), certificate("caller").read_bytes()
    )
    own = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(service.grpc_target, credentials, options=own)


def is_serving(channel: grpc.Channel) -> bool:
    reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=60)
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Two workers on one gRPC port, mutual TLS on both doors; the last test here ends it."""
    environment = {"TURNSCORE_WORKERS": "2", "TURNSCORE_MODELS": "engagement", "TURNSCORE_DRAIN_SECONDS": "6"}
    environment |= {name: str(file) for name, file in CERTIFICATES.items()}
    options = [str(word) for word in (*OVER_HTTPS, *MUTUALLY)]
    folder = tmp_path_factory.mktemp("guarded")
    with running_service(folder, environment=environment, options=options, tls=over_https()) as started:
        with ExitStack() as opened:  # /readyz was one worker's; as many connections as these reach both
            channels = [opened.enter_context(secure_channel(started)) for _ in range(24)]
            wait_until(lambda: all(is_serving(channel) for channel in channels))
        yield started


def test_only_a_caller_whom_the_authority_signed_is_served_over_https(guarded: RunningService):
    scored = httpx.post(guarded.url + "/v1/score", json={"response": "ok"}, verify=over_https())
    assert "engagement" in scored.json()["scores"]
    for stranger in (None, "stranger"):
        with pytest.raises(httpx.TransportError):
            httpx.post(guarded.url + "/v1/score", json={"response": "ok"}, verify=over_https(stranger))


def test_two_workers_share_the_grpc_port(guarded: RunningService):
    port = int(guarded.grpc_target.rpartition(":")[2])
    with ExitStack() as opened:
        channels = [opened.enter_context(secure_channel(guarded)) for _ in range(24)]
        assert all(is_serving(channel) for channel in channels)
        workers = psutil.Process(guarded.process.pid).children()

        def shares() -> list[int]:
            return [count for worker in workers if (count := connections_of(worker, port))]

        wait_until(lambda: sum(shares()) == len(channels))  # closed ones of before may take a moment to go
        assert len(shares()) == 2


def test_sigterm_turns_health_off_and_loses_no_call(guarded: RunningService):
    batch = turnscore_pb2.BatchRequest(items=[{"response": f"turn number {n} of a long batch"} for n in range(64)])
    with secure_channel(guarded) as channel:
        stub = TurnScorerStub(channel)
        asked = stub.ScoreBatch.future(batch, timeout=60)
        stub.Models(turnscore_pb2.ModelsRequest())  # behind the batch on the same connection: it has arrived
        guarded.process.terminate()
        wait_until(lambda: not is_serving(channel))
        late = stub.Score(turnscore_pb2.ScoreRequest(response="still answered while draining"), timeout=60)
        assert "engagement" in late.scores
        assert len(asked.result(60).results) == 64
    assert guarded.process.wait(120) == 0
