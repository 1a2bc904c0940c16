import asyncio
import threading
from pathlib import Path

from prometheus_client import metrics as prometheus_metrics
from turnscore_service import metrics
from turnscore_service.api.http import app as http_transport

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


def defined():
    """Every series of the metrics module as it is scraped, with its labels."""
    found = {}
    for value in vars(metrics).values():
        if isinstance(value, prometheus_metrics.MetricWrapperBase):
            name = value._name + ("_total" if value._type == "counter" else "")
            found[name] = value._labelnames
    return found


def documented():
    rows = [line.split("|") for line in DOCS.read_text().splitlines() if line.startswith("| `turnscore_")]
    return {row[1].strip(" `"): tuple(row[3].replace("`", "").replace(",", " ").split()) for row in rows}


def test_the_documented_metrics_are_the_exported_ones():
    assert documented() == defined()


async def test_others_are_answered_while_metrics_are_gathered(client, monkeypatch):
    may_end, has_begun = threading.Event(), threading.Event()

    def gather(_):
        has_begun.set()
        assert may_end.wait(60)
        return b"gathered"

    monkeypatch.setattr(http_transport, "generate_latest", gather)
    scrapes = [asyncio.create_task(client.get("/metrics")) for _ in range(3)]
    assert await asyncio.to_thread(has_begun.wait, 60)
    assert (await client.get("/livez")).status_code == 200
    may_end.set()
    assert [(await each).content for each in scrapes] == [b"gathered"] * 3
