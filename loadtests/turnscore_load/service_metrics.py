"""The service's metrics at this moment, as its page /metrics has them. Judges nothing."""

from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from turnscore_load.address import LOOPBACK


def read_metrics(port: int) -> list[Sample]:
    """Every sample of the service whose HTTP door is on that port."""
    with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as reply:
        return [each for family in text_string_to_metric_families(reply.read().decode()) for each in family.samples]


def sum_of(samples: list[Sample], *names: str) -> float:
    """All samples of these names together."""
    return sum(each.value for each in samples if each.name in names)
