"""What the measurements of hooks and of telemetry do, on a service without a model."""

import asyncio
from pathlib import Path

import pytest
from support.fakes import FakeScorer
from support.served_app import served_app
from turnscore_bench.hooks.__main__ import _measure
from turnscore_bench.telemetry.__main__ import _ways
from turnscore_service.settings.service import Settings, TelemetrySettings


def test_every_way_of_replying_is_timed_as_often_and_every_turn_is_scored():
    with served_app(engagement=FakeScorer()) as url:
        took = asyncio.run(_measure(url, "engagement", 3))
    assert {name: len(times) for name, times in took.items()} == {
        "nothing": 3,
        "behind the back": 3,
        "the service itself": 3,
        "with a gate": 3,
    }
    assert min(took["with a gate"]) > max(took["nothing"])  # the gate waits for the service


@pytest.mark.parametrize("way", ["off", "off again", "1 %, events sampled", "1 %, events all", "100 %, events all"])
def test_each_way_of_telemetry_is_what_its_name_says(way: str, monkeypatch: pytest.MonkeyPatch):
    _, environment = _ways(Path("serving"), None, "http://127.0.0.1:9")[way]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    told = Settings().telemetry
    if way.startswith("off"):
        assert told == TelemetrySettings()
    else:
        share, _, events = way.partition(" %, events ")
        assert (told.endpoint, told.sample_share, told.events) == ("http://127.0.0.1:9", int(share) / 100, events)
