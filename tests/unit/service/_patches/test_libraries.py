"""What is patched of BentoML and the Prometheus client, and the shapes of libraries that patches rely on."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import prometheus_client
import pytest
from bentoml._internal.configuration.containers import BentoMLContainer
from circus.sighandler import SysHandler
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from turnscore_service._patches import prometheus_series
from turnscore_service._patches.bentoml_metrics import FullDiskError, claim_folder, refuse_full_disk
from turnscore_service._patches.circus_hangup import handle_hangup


def test_the_supervisor_calls_the_handler_of_a_hangup_by_its_name(monkeypatch):
    monkeypatch.setattr(SysHandler, "handle_hup", SysHandler.handle_hup)
    monkeypatch.setattr(SysHandler, "_register", lambda _: None)  # it would take over this process's signals
    handled = []
    handle_hangup(lambda: handled.append("hangup"))
    SysHandler(controller=None).signal(signal.SIGHUP)
    assert handled == ["hangup"]


ASK = "from bentoml._internal.utils.analytics.usage_stats import do_not_track; print(not do_not_track())"
SERVE = f"""if True:
    import os
    from turnscore_service import serving
    execute = os.execv
    serving.os.execv = lambda path, words: execute(path, [path, "-c", {ASK!r}])
    serving.serve()
"""


STORE = f"from turnscore_models.store import list_bundles; list_bundles(); {ASK}"


@pytest.mark.parametrize(
    ("code", "given", "sent"),
    [(SERVE, {}, False), (STORE, {}, False), (STORE, {"BENTOML_DO_NOT_TRACK": "False"}, True)],
)
def test_bentoml_sends_usage_reports_only_where_told_to(code, given, sent, tmp_path):
    """The supervisor that `turnscore serve` becomes with several workers, and whatever stores a bundle."""
    environment = {name: value for name, value in os.environ.items() if name != "BENTOML_DO_NOT_TRACK"}
    environment |= {"TURNSCORE_WORKERS": "2", "BENTOML_HOME": str(tmp_path), **given}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.split()[-1] == str(sent)


WORKER = """
import os, sys
from turnscore_service import metrics
print(os.environ["PROMETHEUS_MULTIPROC_DIR"], flush=True)
sys.stdin.read()
"""
# A worker's parent is its service's supervisor.
SUPERVISOR = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}])"


@contextmanager
def service(home):
    """A supervisor with one worker, whose folder it is, given as BentoML names it."""
    given = home / Path(BentoMLContainer.prometheus_multiproc_dir.get()).name
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(given)}
    command = [sys.executable, "-c", SUPERVISOR]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        yield Path(process.stdout.readline().strip())
        process.communicate()


def test_what_ended_services_left_is_removed_by_the_next(tmp_path):
    with service(tmp_path) as left:
        pass
    assert left.exists()
    with service(tmp_path) as own:
        assert [each for each in own.parent.iterdir() if each.is_dir()] == [own]
        assert [each.stem for each in own.parent.glob("*.lock")] == [own.name]


def test_a_process_that_is_no_worker_keeps_the_folder_it_was_given(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "mine"))
    claim_folder()
    assert os.environ["PROMETHEUS_MULTIPROC_DIR"] == str(tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_refused_with_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("BENTOML_HOME", str(tmp_path / "not" / "yet"))
    refuse_full_disk()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 4096})())
    with pytest.raises(FullDiskError, match="4,096 bytes free"):
        refuse_full_disk()


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
