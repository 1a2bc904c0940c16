"""The Ray engine with real clusters on this machine: what is killed is done again, and the output is one run's.

Ray's workers find `support` by PYTHONPATH, which `make test-ray` sets.
"""

import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from support import corpora
from turnscore_client._files.runs import StoppedError
from turnscore_core.engine import open_file_engine
from turnscore_corpus.command import run_job
from turnscore_corpus.engines.work import EngineChoice, Work
from turnscore_corpus.inputs.files import Columns, find_files
from turnscore_corpus.inputs.plan import make_plan
from turnscore_corpus.outputs.folder import OutputFolder
from turnscore_wire import ScoreReply, ScoreRequest

ray = pytest.importorskip("ray", reason="Ray is in the environment of `make test-ray` alone")

from ray.cluster_utils import Cluster  # noqa: E402
from turnscore_corpus.engines import ray_engine  # noqa: E402

STORE_BYTES = 80 * 1024 * 1024  # of each node's object store: about Ray's least
STARTER = Path(__file__).parents[2] / "model_store" / "starter" / "engagement"


@pytest.fixture
def lines(tmp_path):
    return corpora.write_lines(tmp_path / "a.jsonl", corpora.dialogue_rows(160))


@pytest.fixture
def whole(lines, tmp_path):
    """The tables of a run that nobody disturbed."""
    run_job(corpora.job_of(lines, tmp_path / "whole", corpora.WordEngine))
    return corpora.content_of(tmp_path / "whole")


@pytest.fixture(scope="module")
def cluster():
    """Three nodes that compute and one that does not, where drivers connect: this process is connected.

    All tests share it, as it takes long to start; one of them kills a node.
    """
    corpora.be_patient_with_nodes()
    common = {"object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **common})
    try:
        for _ in range(3):
            cluster.add_node(num_cpus=2, **common)
        ray.init(address=cluster.address, logging_level="error")
        try:
            yield cluster
        finally:
            ray.shutdown()
    finally:
        try:
            cluster.shutdown()
        except ValueError:  # the thread of a run that was stopped had connected again; Ray ends that and complains
            cluster.shutdown()


def count_actors(node):
    """Ray names an actor's process by its class, and one that waits for work IDLE."""
    [raylet] = node.all_processes["raylet"]
    names = [each.cmdline()[:1] for each in psutil.Process(raylet.process.pid).children()]
    return sum(name[0].startswith("ray::MapWorker") for name in names if name)


def manifests(output):
    return sorted(each.name for each in output.glob("manifests/part-*.json"))


def wait_for(condition):
    until = time.monotonic() + corpora.PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_cluster_that_is_not_there_stops_the_run(lines, tmp_path):
    with pytest.raises(StoppedError, match="Ray does not start on"):
        corpora.score_on_ray(lines, tmp_path / "out", corpora.WordEngine, address="127.0.0.1:1")


def test_a_node_that_is_killed_in_the_middle_loses_nothing_and_doubles_nothing(cluster, lines, whole, tmp_path):
    output = tmp_path / "out"
    left_at_death = []

    def kill():
        wait_for(lambda: len(manifests(output)) >= 4)
        cluster.remove_node(max(cluster.worker_nodes, key=count_actors), allow_graceful=False)
        left_at_death.append(40 - len(manifests(output)))

    killing = threading.Thread(target=kill)
    killing.start()
    totals = corpora.score_on_ray(lines, output, corpora.UnhurriedEngine)
    killing.join()
    assert left_at_death[0] > 0
    assert (totals["blocks"], totals["dialogues"]) == (40, 160)
    assert corpora.content_of(output) == whole


def test_a_worker_that_is_killed_is_replaced(cluster, lines, whole, tmp_path):
    memory = tmp_path / "memory"
    memory.mkdir()
    corpora.score_on_ray(lines, tmp_path / "out", partial(corpora.MortalEngine, memory, 1), workers=2)
    assert len(list(memory.iterdir())) == 1
    assert corpora.content_of(tmp_path / "out") == whole


def test_a_block_that_kills_every_worker_stops_the_run(cluster, lines, tmp_path):
    memory = tmp_path / "memory"
    memory.mkdir()
    with pytest.raises(StoppedError, match="Ray gave up"):
        corpora.score_on_ray(lines, tmp_path / "out", partial(corpora.MortalEngine, memory, 1000), workers=2)
    assert len(list(memory.iterdir())) > 1


def test_a_driver_that_is_killed_goes_on_where_it_was(cluster, lines, whole, tmp_path):
    output = tmp_path / "out"
    command = [sys.executable, corpora.__file__, str(lines), str(output)]
    with subprocess.Popen(command) as driver:
        wait_for(lambda: len(manifests(output)) >= 4 or driver.poll() is not None)
        driver.send_signal(signal.SIGKILL)
    committed = manifests(output)
    assert 4 <= len(committed) < 40
    before = {name: (output / "manifests" / name).stat().st_mtime_ns for name in committed}
    corpora.score_on_ray(lines, output, corpora.UnhurriedEngine, workers=2)
    assert {name: (output / "manifests" / name).stat().st_mtime_ns for name in committed} == before
    assert corpora.content_of(output) == whole


def test_the_numbers_are_those_of_the_local_engine_to_the_last_bit(cluster, tmp_path):
    source = corpora.write_lines(tmp_path / "a.jsonl", corpora.dialogue_rows(24))
    choice = EngineChoice(models=(f"{STARTER}/",))
    run_job(corpora.job_of(source, tmp_path / "local", choice.open))
    corpora.score_on_ray(source, tmp_path / "ray", choice.open, workers=2)
    assert corpora.content_of(tmp_path / "ray") == corpora.content_of(tmp_path / "local")


def test_the_lines_of_a_file_are_answered_as_on_this_machine(cluster):
    requests = [ScoreRequest(response=f"i have {number} dogs.") for number in range(7)]
    requests.append(ScoreRequest(response="so?", scorers=["charm"]))
    here = open_file_engine([str(STARTER)], None)
    there = ray_engine.RayFileEngine([str(STARTER)], None)
    try:
        for found, wanted in zip(there.answer(requests), here.answer(requests), strict=True):
            assert type(found) is type(wanted)
            if isinstance(wanted, ScoreReply) and isinstance(found, ScoreReply):
                value = wanted.scores["engagement"].value
                assert found.scores["engagement"].value == pytest.approx(value, abs=1e-6)
            else:
                assert found == wanted
        assert there.limits == here.limits
    finally:
        there.close()
        here.close()
    assert ray.is_initialized()  # it was connected before, and others use it


def test_what_a_block_raised_stops_the_run_and_is_named(cluster, lines, tmp_path):
    with pytest.raises(StoppedError, match=r"block \d+: BundleError: no such bundle"):
        corpora.score_on_ray(lines, tmp_path / "out", corpora.OpenableHere(), workers=1)


def test_a_ray_that_says_nothing_is_noticed(lines, tmp_path):
    made = make_plan(find_files([str(lines)]), Columns(), 4)
    work = Work(
        blocks=made.blocks,
        open_engine=corpora.WordEngine,
        output=OutputFolder(str(tmp_path), "job"),
        on_block=lambda _: None,
    )
    silent = threading.Event()

    def rows():
        silent.wait(corpora.PATIENCE_SECONDS)
        yield from ()

    try:
        with pytest.raises(StoppedError, match="no block was committed for 0 s; "):
            ray_engine._drain(rows(), work, stall_seconds=0.1)
    finally:
        silent.set()
