"""A cluster of Ray on this machine: nodes that compute, each with a raylet of its own, to be killed. Scores nothing."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from ray.cluster_utils import Cluster

NODES = 3
PATIENCE_SECONDS = 1200  # for which a node may take to start where other programs compute; chosen
_ACTOR = "ray::MapWorker"
_STORE_BYTES = 80 * 1024 * 1024  # of each node's object store: about Ray's least


@contextmanager
def cluster_of_nodes(cpus_per_node: int = 2) -> Iterator[Cluster]:
    """Three nodes that compute and one that does not, where drivers connect; ended afterwards."""
    be_patient_with_nodes()
    common = {"object_store_memory": _STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **common})
    try:
        for _ in range(NODES):
            cluster.add_node(num_cpus=cpus_per_node, **common)
        yield cluster
    finally:
        try:
            cluster.shutdown()
        except ValueError:  # the thread of a run that was stopped had connected again; Ray ends that and complains
            cluster.shutdown()


def kill_node(cluster: Cluster) -> int:
    """Kills the processes of the node that has most actors, and how many those were."""
    node = max(cluster.worker_nodes, key=_count_actors)
    actors = _count_actors(node)
    cluster.remove_node(node, allow_graceful=False)
    return actors


def _count_actors(node: Any) -> int:
    """Ray names an actor's process by its class, and one that waits for work IDLE."""
    [raylet] = node.all_processes["raylet"]
    names = [each.cmdline()[:1] for each in psutil.Process(raylet.process.pid).children()]
    return sum(name[0].startswith(_ACTOR) for name in names if name)


def be_patient_with_nodes() -> None:
    """Ray ends a start when a node's agents take more than 30 seconds, which they do where other programs compute."""
    from ray._private import services

    ask = services.get_node

    def wait(*asked: Any, **options: Any) -> Any:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return ask(*asked, **options)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)  # polling a cluster: there is nothing to wait on

    os.environ["RAY_agent_register_timeout_ms"] = str(1000 * PATIENCE_SECONDS)  # noqa: SIM112 - Ray's names
    os.environ["RAY_worker_register_timeout_seconds"] = str(PATIENCE_SECONDS)  # noqa: SIM112
    services.get_node = wait
