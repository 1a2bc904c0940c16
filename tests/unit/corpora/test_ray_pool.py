"""How many workers a run has on Ray, and what is said where Ray is not there."""

import sys

import pytest
import typer
from turnscore_corpus.command import _choose_elsewhere
from turnscore_corpus.engines.work import RayChoice, size_pool
from turnscore_corpus.errors import RunStoppedError

POOLS = [
    ({"CPU": 5}, {}, 100, (2, 2)),
    ({"CPU": 99}, {}, 100, (96, 96)),
    ({"CPU": 99}, {}, 4, (4, 4)),
    ({"CPU": 19}, {"workers": 2}, 100, (2, 2)),
    ({"CPU": 2}, {"workers": 64}, 100, (1, 64)),  # the cluster is asked to grow
    ({"CPU": 32, "GPU": 4}, {"gpus_per_worker": 1.0}, 100, (4, 4)),
    ({"CPU": 32, "GPU": 1}, {"gpus_per_worker": 0.25}, 100, (4, 4)),
]


@pytest.mark.parametrize(("resources", "choice", "blocks", "size"), POOLS)
def test_workers_leave_ray_its_cpus_and_are_no_more_than_blocks(resources, choice, blocks, size):
    assert size_pool(resources, RayChoice(**choice), blocks) == size


@pytest.mark.parametrize(
    ("resources", "choice", "needs"),
    [
        ({"CPU": 3}, {}, "one worker needs 4 CPUs"),
        ({"CPU": 32}, {"gpus_per_worker": 1.0}, "one worker needs 4 CPUs and 1 GPUs"),
    ],
)
def test_a_cluster_without_room_for_a_worker_is_refused(resources, choice, needs):
    with pytest.raises(RunStoppedError, match=needs):
        size_pool(resources, RayChoice(**choice), 10)


def test_an_address_is_for_ray_and_ray_has_to_be_installed(monkeypatch):
    assert _choose_elsewhere("local", None, None, "cpu") is None
    with pytest.raises(typer.BadParameter, match="needs --engine ray"):
        _choose_elsewhere("local", "auto", None, "cpu")
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "turnscore_corpus.engines.ray_engine", raising=False)
    with pytest.raises(typer.BadParameter, match="the extra `ray`"):
        _choose_elsewhere("ray", None, None, "cpu")
