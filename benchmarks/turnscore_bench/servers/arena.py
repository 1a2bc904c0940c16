"""Measuring: starts the servers, checks that they answer rightly, drives one at a time. Knows no rounds."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnscore_load.address import free_port

from turnscore_bench.harness.processes import Server, StartError, drive
from turnscore_bench.harness.traffic import LengthMix, Traffic
from turnscore_bench.servers.bare import BareProcess, EngagementRows
from turnscore_bench.servers.contenders import Contender
from turnscore_bench.servers.results import Measurement

_CHECKED_TURNS = 16
_WARM_UP_TURNS = 32
_WARM_UP_CLIENTS = 16


class Arena:
    """The servers, of which only the one that is measured runs: the others are paused."""

    def __init__(self, output: Path, traffic: Traffic) -> None:
        """Servers' folders and the jobs of the load generator go below `output`."""
        self._output = output
        self._traffic = traffic
        self._servers: dict[str, Server] = {}

    def start(self, contender: Contender) -> None:
        """Starts the contender's server unless it is there already. Raises StartError."""
        spec = contender.server
        if spec.key in self._servers:
            return
        folder = spec.folder or self._output / "servers" / spec.key
        port = free_port()
        server = Server(spec.command(port), folder, spec.environment, port)
        self._servers[spec.key] = server
        try:
            server.wait_until_ready(spec.ready_path)
        except StartError:
            self._servers.pop(spec.key).stop()
            raise
        server.pause()

    def check(self, contender: Contender, mix: LengthMix, bare: BareProcess, rows: EngagementRows) -> None:
        """Raises StartError where the contender's answers are not the expected ones."""
        turns = self._traffic.turns(mix, _CHECKED_TURNS)
        expect = contender.answers.expect
        expected = expect(rows.of(turns)) if expect else bare.order("run_best", mix.name, turns)["values"]
        replies = self._drive(contender, self._bodies(contender, turns), 1, keeps_replies=True)["replies"]
        found = [value for reply in replies for value in contender.answers.read(json.loads(reply))]
        if len(found) != len(expected):
            raise StartError(f"gives {len(found)} values where {len(expected)} are right")
        distance = contender.answers.distance(found, expected)
        if not distance <= contender.answers.tolerance:
            raise StartError(f"answers wrongly: what it gives is off by {distance:.4f}")

    def warm_up(self, contender: Contender, mixes: Sequence[LengthMix]) -> None:
        """A few turns of each mix. Raises StartError where the server hangs up."""
        for mix in mixes:
            turns = self._traffic.turns(mix, _WARM_UP_TURNS * contender.turns_per_request)
            self._drive(contender, self._bodies(contender, turns), _WARM_UP_CLIENTS)

    def measure(self, contender: Contender, mix: LengthMix, clients: int, count: int) -> Measurement:
        """Sends that many fresh turns from idle to idle. Raises StartError where the server hangs up."""
        done = self._drive(contender, self._bodies(contender, self._traffic.turns(mix, count)), clients)
        latencies = sorted(done["latencies_ms"])
        return Measurement(
            contender=contender.key,
            mix=mix.name,
            clients=clients,
            turns=done["answered"] * contender.turns_per_request - done["failed_items"],
            wall_seconds=done["wall_seconds"],
            cpu_seconds=done["cpu_seconds"],
            client_cpu_seconds=done["client_cpu_seconds"],
            p50_ms=statistics.median(latencies),
            p99_ms=latencies[int(0.99 * len(latencies))],
            refused=done["refused"],
            failed=done["failed_requests"] + done["failed_items"],
            first_error=done["first_error"],
        )

    def stop(self) -> None:
        """Ends all servers."""
        for server in self._servers.values():
            server.stop()

    def _bodies(self, contender: Contender, turns: Sequence[Any]) -> list[str]:
        size = contender.turns_per_request
        return [json.dumps(contender.body(turns[at : at + size])) for at in range(0, len(turns), size)]

    def _drive(
        self, contender: Contender, bodies: list[str], clients: int, *, keeps_replies: bool = False
    ) -> Mapping[str, Any]:
        """What the contender's load generator reports, and the CPU seconds of the server's tree meanwhile."""
        server = self._servers[contender.server.key]
        job = {
            "port": contender.port or server.port,
            "path": contender.path,
            "bodies": bodies,
            "clients": clients,
            "keeps_replies": keeps_replies,
        }
        return drive(server, contender.client, job, self._output)
