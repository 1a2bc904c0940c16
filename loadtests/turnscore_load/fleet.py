"""Replicas behind haproxy with a Redis that Sentinel watches, and changed or damaged copies of bundles."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnscore_load.machine import LOOPBACK, free_port
from turnscore_load.processes import Process, find_program, redis_process, wait_until
from turnscore_load.services import ONE_BATCH_AT_A_TIME, service_process

STARTER = Path(__file__).parents[2] / "model_store" / "starter"
_CONFIGURATION = Path(__file__).with_name("replicas_haproxy.cfg").read_text()
_MASTER = "scores"
_DOWN_AFTER_MS, _FAILOVER_MS = 1000, 5000


@dataclass(kw_only=True)
class Fleet:
    """What runs: the replicas behind the proxy, two Redis servers of which one is master, and their Sentinel."""

    replicas: Sequence[Process]
    proxy: Process
    plain_port: int
    grpc_port: int
    redis: Sequence[Process]
    sentinel: Process
    bundles: Sequence[Path]
    folder: Path
    record: Path

    @property
    def url(self) -> str:
        return self.proxy.url

    @property
    def grpc_target(self) -> str:
        return f"{LOOPBACK}:{self.grpc_port}"

    @property
    def redis_url(self) -> str:
        return f"redis+sentinel://{LOOPBACK}:{self.sentinel.port}/{_MASTER}"

    def master_first(self) -> list[Process]:
        """The Redis servers, that which Sentinel names first."""
        from redis import Redis

        with Redis(port=self.sentinel.port, socket_timeout=5) as client:
            port = int(client.execute_command("SENTINEL", "get-master-addr-by-name", _MASTER)[1])
        return sorted(self.redis, key=lambda each: each.port != port)

    def wait_until_whole(self) -> None:
        """Returns when everything is ready, and one Redis follows the other. Raises StartError."""
        for each in (*self.replicas, self.proxy, *self.redis, self.sentinel):
            each.wait_until_ready()
        wait_until(self._is_followed, "the Redis that follows the other")

    def _is_followed(self) -> bool:
        from redis import Redis, exceptions

        try:
            master, follower = self.master_first()
            with (
                Redis(port=master.port, socket_timeout=5) as first,
                Redis(port=follower.port, socket_timeout=5) as next_,
            ):
                told = next_.info("replication")
                followed = (told["role"], told.get("master_port"), told.get("master_link_status"))
                return first.info("replication")["role"] == "master" and followed == ("slave", master.port, "up")
        except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.ResponseError):
            return False


@contextmanager
def fleet(programs: Path, folder: Path, bundles: Sequence[Path], keys: Path, record: Path) -> Iterator[Fleet]:
    """Starts three replicas and the rest, and stops all again. Raises StartError.

    Two replicas ask Sentinel for the master; the third is told the first Redis, whichever that is later. `keys` is the
    file of API keys, and `record` one that keeps every process's id.
    """
    folder = folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    first = _redis(folder / "redis-0")
    second = _redis(folder / "redis-1", f"replicaof {LOOPBACK} {first.port}")
    watched = folder / "sentinel.conf"
    watched.write_text(
        f"sentinel monitor {_MASTER} {LOOPBACK} {first.port} 1\n"
        f"sentinel down-after-milliseconds {_MASTER} {_DOWN_AFTER_MS}\n"
        f"sentinel failover-timeout {_MASTER} {_FAILOVER_MS}\n"
    )
    sentinel = redis_process(folder / "sentinel", str(watched), "--sentinel", "--bind", LOOPBACK)
    urls = [f"redis+sentinel://{LOOPBACK}:{sentinel.port}/{_MASTER}"] * 2 + [f"redis://{LOOPBACK}:{first.port}/0"]
    replicas = []
    for number, url in enumerate(urls):
        settings = {**_settings(bundles, keys, url), "TURNSCORE_ADMIN__FOLDER": str(folder / f"admin-{number}")}
        replicas.append(service_process(programs / "turnscore", folder / f"replica-{number}", settings, clean=True))
    port, plain_port, grpc_port = free_port(), free_port(), free_port()
    http = [f"    server replica{at} {LOOPBACK}:{each.port}" for at, each in enumerate(replicas)]
    grpc = [f"    server replica{at} {each.grpc_target} check port {each.port}" for at, each in enumerate(replicas)]
    written = folder / "haproxy.cfg"
    written.write_text(
        _CONFIGURATION.format(
            address=LOOPBACK, port=port, plain_port=plain_port, grpc_port=grpc_port,
            servers="\n".join(http), grpc_servers="\n".join(grpc),
        )
    )  # fmt: skip
    proxy = Process([find_program("haproxy"), "-db", "-f", written], folder, port=port, ready="/readyz")
    found = Fleet(
        replicas=replicas, proxy=proxy, plain_port=plain_port, grpc_port=grpc_port, redis=(first, second),
        sentinel=sentinel, bundles=bundles, folder=folder, record=record,
    )  # fmt: skip
    with ExitStack() as stack:
        for each in (first, second, sentinel, *replicas, found.proxy):
            each.record = record
            stack.callback(each.stop)
            each.start(wait=False)
        found.wait_until_whole()
        yield found


def _redis(folder: Path, *more: str) -> Process:
    """By a file, which Sentinel has rewritten: the server is started again in the role that it had last."""
    folder.mkdir()
    options = (f"bind {LOOPBACK}", 'save ""', "maxmemory 64mb", "maxmemory-policy allkeys-lru", *more)
    file = folder / "redis.conf"
    file.write_text("".join(f"{each}\n" for each in options))
    return redis_process(folder, str(file))


def _settings(bundles: Sequence[Path], keys: Path, url: str) -> Mapping[str, str]:
    return {
        "TURNSCORE_MODELS": ",".join(f"{each}/" for each in bundles),
        "TURNSCORE_DRAIN_SECONDS": "2",
        **ONE_BATCH_AT_A_TIME,
        "TURNSCORE_CACHE__URL": url,
        "TURNSCORE_CACHE__LOCAL_MAX_BYTES": str(4 * 1024 * 1024),  # so that the Redis answers, too
        "TURNSCORE_AUTH__KEYS_FILE": str(keys),
        "TURNSCORE_GRPC__MAX_CONNECTION_AGE_SECONDS": "30",
    }


def copy_as(version: str, folder: Path, bundle: Path = STARTER / "engagement") -> Path:
    """The bundle under another version, which the manifest's checksums do not cover."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(bundle, folder)
    _change_manifest(folder, version=version)
    return folder


def damage(folder: Path) -> Path:
    """Flips one byte of a graph: the checksum finds it before anything is loaded."""
    graph = graph_of(folder)
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    return folder


def falsify(folder: Path) -> Path:
    """Changes what a self-test turn should score, checksum and all: the self-test finds it, with the graph loaded."""
    test_file = folder / json.loads((folder / "manifest.json").read_text())["self_test"]
    test = json.loads(test_file.read_text())
    turn = test["turns"][0]
    for found in [turn, *turn.get("graphs", {}).values()]:
        if found.get("value") is not None:
            found["value"] += 0.3
    test_file.write_text(json.dumps(test))
    sign(folder, test_file)
    return folder


def graph_of(folder: Path) -> Path:
    return next(folder.rglob("*.onnx"))


def sign(folder: Path, file: Path) -> None:
    """The checksum of a changed file, as its manifest states it."""
    files = json.loads((folder / "manifest.json").read_text())["files"]
    name = str(file.relative_to(folder))
    _change_manifest(folder, files={**files, name: hashlib.sha256(file.read_bytes()).hexdigest()})


def _change_manifest(folder: Path, **fields: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, indent=2) + "\n")
