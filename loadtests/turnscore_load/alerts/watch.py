"""Watch: a Prometheus with the shortened rules, and which alerts fire in it, second by second."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from turnscore_load.address import LOOPBACK, free_port
from turnscore_load.programs import answers, running, wait_until

_SCRAPE_SECONDS = 2.0
"""Five scrapes in the shortest window of the shortened rules; also what a busy service may take for one."""
_EVALUATION_SECONDS = 0.5
_LOOK_SECONDS = 0.25
ANY_JOB = ""
"""Of an alert that names none."""
Firing = tuple[str, str]
"""An alert's name and the job that it is about."""


class SilentAlertError(Exception):
    """An alert did not fire, or did not clear, in time; the message says which."""


@dataclass(kw_only=True)
class Watch:
    """What has fired, and since when."""

    port: int
    process: "subprocess.Popen[bytes]"
    baseline: Path
    """Further rules, which Prometheus reads at `reload`."""
    firing: frozenset[Firing] = frozenset()
    seen: set[Firing] = field(default_factory=set)
    """All that ever fired."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def reload(self) -> None:
        """Prometheus reads its rules again."""
        self.process.send_signal(signal.SIGHUP)

    async def follow(self) -> None:
        """Asks Prometheus what fires, until it is cancelled."""
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            while True:
                found = (await client.get("/api/v1/alerts")).raise_for_status().json()["data"]["alerts"]
                await self.take(
                    frozenset(
                        (each["labels"]["alertname"], each["labels"].get("job", ANY_JOB))
                        for each in found
                        if each["state"] == "firing"
                    )
                )
                await asyncio.sleep(_LOOK_SECONDS)

    async def take(self, firing: frozenset[Firing]) -> None:
        """What fires at this moment."""
        async with self._changed:
            self.firing = firing
            self.seen |= firing
            self._changed.notify_all()

    async def wait_for(self, wanted: frozenset[Firing], *, fires: bool, seconds: float) -> dict[Firing, float]:
        """When each fired, or cleared, by the monotonic clock. Raises SilentAlertError."""
        took: dict[Firing, float] = {}
        try:
            async with asyncio.timeout(seconds), self._changed:
                while len(took) < len(wanted):
                    done = wanted & self.firing if fires else wanted - self.firing
                    took |= {each: time.monotonic() for each in done - took.keys()}
                    if len(took) < len(wanted):
                        await self._changed.wait()
        except TimeoutError:
            late = ", ".join(sorted(name for name, _ in wanted - took.keys()))
            raise SilentAlertError(f"{'fired' if fires else 'cleared'} not in {seconds:.0f} s: {late}") from None
        return took

    async def value_of(self, query: str) -> float | None:
        """The first value that a query gives; None where it gives nothing."""
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            answer = (await client.get("/api/v1/query", params={"query": query})).raise_for_status().json()
        found = answer["data"]["result"]
        return float(found[0]["value"][1]) if found else None


@asynccontextmanager
async def watching(program: str, rules: str, targets: Mapping[str, int], folder: Path) -> AsyncIterator[Watch]:
    """Starts Prometheus, which scrapes the port of each job, and follows it. Raises NoProgramError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yml").write_text(rules)
    baseline = folder / "baseline.yml"
    baseline.write_text("groups: []\n")
    (folder / "prometheus.yml").write_text(json.dumps(_configuration(targets)))  # JSON is YAML
    port = free_port()
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address={LOOPBACK}:{port}",
    ]
    with running(command, folder / "prometheus.log") as process:
        wait_until(lambda: answers(port, "/-/ready"), "prometheus")
        watch = Watch(port=port, process=process, baseline=baseline)
        following = asyncio.create_task(watch.follow())
        try:
            yield watch
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _configuration(targets: Mapping[str, int]) -> dict[str, object]:
    each, often = (f"{seconds * 1000:.0f}ms" for seconds in (_SCRAPE_SECONDS, _EVALUATION_SECONDS))
    return {
        "global": {"scrape_interval": each, "scrape_timeout": each, "evaluation_interval": often},
        "rule_files": ["rules.yml", "baseline.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]} for job, port in targets.items()
        ],
    }
