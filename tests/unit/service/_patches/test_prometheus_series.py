"""Series count what prometheus_client's own count, in this process at once and in the workers' files when written."""

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from turnscore_service._patches import prometheus_series

BUCKETS = (0.001, 0.01, 0.1, 1.0)


@given(st.lists(st.one_of(st.sampled_from(BUCKETS), st.floats(0, 10))))
def test_a_histogram_has_the_same_buckets_and_sum(amounts):
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counted = prometheus_series.Histogram("took_seconds", "Time.", ["of"], buckets=BUCKETS, registry=ours)
    compared = prometheus_client.Histogram("took_seconds", "Time.", ["of"], buckets=BUCKETS, registry=theirs)
    for amount in amounts:
        counted.labels("a").observe(amount)
        compared.labels("a").observe(amount)
    for name in ("took_seconds_sum", "took_seconds_count", *("took_seconds_bucket",) * len(BUCKETS)):
        for bound in ({}, *({"le": str(bound)} for bound in (*BUCKETS, "+Inf"))):
            labels = {"of": "a", **bound}
            assert ours.get_sample_value(name, labels) == theirs.get_sample_value(name, labels)


def test_a_series_has_its_own_number():
    counted = prometheus_series.Counter("things_total", "Things.", ["kind", "place"], registry=CollectorRegistry())
    counted.labels("a", "b").inc()
    counted.labels("a", "c").inc(2)
    assert counted.labels("a", "b") is counted.labels("a", "b")
    assert counted.labels("a", "b")._value.get() == 1
    with pytest.raises(ValueError, match="label count"):
        counted.labels("a")


def test_what_is_tallied_is_in_its_series_when_they_are_read():
    registry = CollectorRegistry()
    counted = prometheus_series.TallyCounter("tallied_total", "Things.", ["kind"], registry=registry)
    for kind in "aab":
        counted.count(kind)
    assert [registry.get_sample_value("tallied_total", {"kind": kind}) for kind in "ab"] == [2, 1]
    counted.count("a")
    prometheus_series.write_out()
    assert counted.labels("a")._value.get() == 3
    assert registry.get_sample_value("tallied_total", {"kind": "a"}) == 3


def test_the_file_of_a_worker_has_what_was_written_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(prometheus_client.values, "ValueClass", prometheus_series._BufferedValue)
    counted = prometheus_series.Counter("written_total", "Things.", ["kind"], registry=CollectorRegistry())
    level = prometheus_series.Gauge("level", "Level.", multiprocess_mode="livesum", registry=CollectorRegistry())
    shared = CollectorRegistry()
    MultiProcessCollector(shared)
    counted.labels("a").inc(2)
    counted.labels("a").inc(3)
    level.set(7)
    assert counted.labels("a")._value.get() == 5
    assert shared.get_sample_value("written_total", {"kind": "a"}) == 0
    prometheus_series.write_out()
    assert shared.get_sample_value("written_total", {"kind": "a"}) == 5
    assert shared.get_sample_value("level") == 7
    counted.labels("a").inc()
    prometheus_series.write_out()
    prometheus_series.write_out()
    assert shared.get_sample_value("written_total", {"kind": "a"}) == 6
