"""`make latency`: what it times is computed, never remembered."""

import latency
import pytest
from turnscore_client.testing import MockTurnScore


def test_no_timed_call_is_answered_from_the_cache(monkeypatch: pytest.MonkeyPatch):
    mock = MockTurnScore()
    monkeypatch.setattr(latency, "TurnScoreClient", lambda _url: mock.client())
    latency.main(port=1, requests=20)
    timed = [request for request in mock.requests if request.path != "/v1/models"]
    assert {request.path for request in timed} == {"/v1/score", "/v1/score_batch", "/v1/rank"}
    for request in timed:
        assert {each.get("cache") for each in request.body.get("items", [request.body])} == {"bypass"}
