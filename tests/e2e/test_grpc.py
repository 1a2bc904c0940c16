"""The real service's gRPC: the scores of HTTP."""

from collections.abc import Iterator

import grpc
import pytest
from support import plain_http
from support.processes import RunningService
from turnscore_client import TurnScoreClient
from turnscore_wire.v1 import to_fields, turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

pytestmark = pytest.mark.e2e

DIALOGUE = [("user", "hi, what did you do today?"), ("system", "i hiked up a volcano. ever been on one?")]


@pytest.fixture
def stub(service: RunningService) -> Iterator[TurnScorerStub]:
    with grpc.insecure_channel(service.grpc_target) as channel:
        yield TurnScorerStub(channel)


def turns() -> list[dict[str, str]]:
    return [{"speaker": f"SPEAKER_{speaker.upper()}", "text": text} for speaker, text in DIALOGUE]


def test_every_scorer_gives_the_scores_of_the_http_transport(client: TurnScoreClient, stub: TurnScorerStub):
    over_http = client.score(context=DIALOGUE, response="no, tell me more!")
    request = turnscore_pb2.ScoreRequest(context=turns(), response="no, tell me more!")
    over_grpc = to_fields(stub.Score(request))["scores"]
    assert {name: score.value for name, score in over_http.scores.items()} == {
        name: score["value"] for name, score in over_grpc.items()
    }
    assert {name: score.details for name, score in over_http.scores.items()} == {
        name: score["details"] for name, score in over_grpc.items()
    }


def test_calls_are_counted_by_their_transport(service: RunningService, stub: TurnScorerStub):
    stub.Models(turnscore_pb2.ModelsRequest())
    metrics = plain_http.get(service.url + "/metrics").text
    assert 'turnscore_requests_total{call="models",code="ok",transport="grpc"}' in metrics
