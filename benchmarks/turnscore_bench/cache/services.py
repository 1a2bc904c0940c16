"""The services that are measured: the real one on starter bundles, each with the cache set in another way."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from turnscore_load.address import free_port

from turnscore_bench.harness.processes import Server, drive

CLIENT = "turnscore_bench.harness.load_client"
_SETTLE_SECONDS = 0.1
"""For scores to be written to the Redis after they were answered: ten times `write_delay_ms`. Chosen."""


@dataclass(frozen=True)
class ServiceSpec:
    """How a service is set; it runs on the starter bundles of these scorers."""

    key: str
    cache: Mapping[str, str]
    """Settings of the cache, without their prefix."""
    scorers: tuple[str, ...] = ("engagement", "fed")


def cache_specs(redis_url: str) -> list[ServiceSpec]:
    """Without a cache, with the level in the process, with Redis alone, and with both, which is how it is meant."""
    return [
        ServiceSpec("off", {"TTL_SECONDS": "0"}),
        ServiceSpec("local", {}),
        ServiceSpec("redis", {"URL": redis_url, "LOCAL_MAX_BYTES": "0"}),
        ServiceSpec("both", {"URL": redis_url}),
    ]


def fault_specs(redis_url: str) -> list[ServiceSpec]:
    """One whose breaker opens as it comes, one whose breaker never does: it takes more failures than are counted."""
    alone = {"URL": redis_url, "LOCAL_MAX_BYTES": "0"}
    return [
        ServiceSpec("opens", alone, ("engagement",)),
        ServiceSpec("stays_closed", {**alone, "BREAKER_WINDOW": "20", "BREAKER_FAILURES": "21"}, ("engagement",)),
    ]


def process_specs(redis_url: str) -> list[ServiceSpec]:
    """Two that share nothing but the Redis."""
    return [ServiceSpec(key, {"URL": redis_url}, ("engagement",)) for key in ("one", "other")]


@dataclass(kw_only=True)
class Services:
    """Started services, of which only the one that is measured runs: the others are paused."""

    serving: Path
    """Folder of the serving environment's bentoml."""
    bundles: Mapping[str, Path]
    output: Path
    _servers: dict[str, Server] = field(default_factory=dict)

    def start(self, specs: Sequence[ServiceSpec], say: Callable[[str], None]) -> None:
        """Starts them one after another, each with the machine to itself. Raises StartError."""
        for spec in specs:
            say(f"starting {spec.key}")
            port = free_port()
            command = [str(self.serving / "bentoml"), "serve", "turnscore_service.bento:TurnScore"]
            command += ["--host", "127.0.0.1", "--port", str(port)]
            server = Server(command, self.output / "servers" / spec.key, self._environment(spec), port)
            self._servers[spec.key] = server
            server.wait_until_ready("/readyz")
            server.pause()

    def drive(self, key: str, path: str, bodies: Sequence[str], clients: int, **job: Any) -> dict[str, Any]:
        """Sends the bodies from idle to idle. Raises StartError where the service hangs up."""
        server = self._servers[key]
        whole_job = {"keeps_replies": False, **job, "port": server.port, "path": path}
        folder = self.output / "servers" / key
        return drive(server, CLIENT, {**whole_job, "bodies": list(bodies), "clients": clients}, folder, _SETTLE_SECONDS)

    def metric(self, key: str, name: str, **labels: str) -> float:
        """The sum of a series of a service over all labels that are not given."""
        server = self._servers[key]
        server.resume()
        try:
            with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        finally:
            server.pause()
        samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
        return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())

    def let_run(self, key: str, seconds: float) -> None:
        """Lets a service run that long without being asked."""
        self._servers[key].resume()
        time.sleep(seconds)  # its later work, such as probing its Redis, is reported to nobody
        self._servers[key].pause()

    def stop(self) -> None:
        """Ends all of them."""
        for server in self._servers.values():
            server.stop()
        self._servers.clear()

    def _environment(self, spec: ServiceSpec) -> dict[str, str]:
        return {
            "BENTOML_DO_NOT_TRACK": "True",
            "BENTOML_HOME": str(self.output / "bentoml" / spec.key),  # where workers put their metrics
            "TURNSCORE_GRPC__ENABLED": "false",
            "TURNSCORE_MODELS": ",".join(str(self.bundles[each]) for each in spec.scorers),
            **{f"TURNSCORE_CACHE__{name}": value for name, value in spec.cache.items()},
        }
