"""A Prometheus with the shipped rules, whose times are shortened, and which alerts fire in it, second by second."""

import asyncio
import json
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx

from turnscore_load.machine import LOOPBACK, ScenarioError, free_port
from turnscore_load.processes import Process, find_program, in_background, running

FACTORS: Mapping[str, float] = {"turnscore-service": 30, "turnscore-values": 1440}
"""By group of rules: an hour becomes two minutes, and a day one. Chosen: a group's shortest window holds five
scrapes."""
_LEAST_INTERVAL = timedelta(seconds=0.5)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_GROUP = re.compile(r"^  - name: (\S+)$", re.MULTILINE)
_WINDOW = re.compile(r"\[(\d+)([smhd])\]")
_WAIT = re.compile(r"^(        for: )(\d+)([smhd])$", re.MULTILINE)
_INTERVAL = re.compile(r"^(    interval: )(\d+)([smhd])$", re.MULTILINE)

_SCRAPE_SECONDS = 2.0
"""Five scrapes in the shortest window of the shortened rules; also what a busy service may take for one."""
_EVALUATION_SECONDS = 0.5
_LOOK_SECONDS = 0.25
ANY_JOB = ""
"""Of an alert that names none."""
Firing = tuple[str, str]
"""An alert's name and the job that it is about."""


class UnknownGroupError(Exception):
    """The rules have a group whose factor is not known."""


class SilentAlertError(ScenarioError):
    """An alert did not fire, or did not clear, in time; the message says which."""


def shorten(rules: str, factors: Mapping[str, float] = FACTORS) -> str:
    """The rules with every window, wait and interval divided by their group's factor. Raises UnknownGroupError.

    Series keep their names: `turnscore:slow_share:1h` is then of a minute.
    """
    head, *parts = _GROUP.split(rules)
    shortened = [head]
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name not in factors:
            raise UnknownGroupError(f"no factor is known for the times of the group {name}")
        shortened += [f"  - name: {name}", _shorten_group(body, factors[name])]
    return "".join(shortened)


def _shorten_group(body: str, factor: float) -> str:
    def divide(number: str, unit: str, least: timedelta = timedelta(0)) -> str:
        return f"{max(timedelta(seconds=int(number) * _SECONDS[unit]) / factor, least) // timedelta(milliseconds=1)}ms"

    body = _WINDOW.sub(lambda found: f"[{divide(found[1], found[2])}]", body)
    body = _WAIT.sub(lambda found: found[1] + divide(found[2], found[3]), body)
    return _INTERVAL.sub(lambda found: found[1] + divide(found[2], found[3], _LEAST_INTERVAL), body)


def alerts_of(rules: str) -> dict[str, float]:
    """Every alert's factor, by its name, in the rules' order."""
    _, *parts = _GROUP.split(rules)
    return {
        alert: FACTORS.get(name, 1)
        for name, body in zip(parts[::2], parts[1::2], strict=True)
        for alert in re.findall(r"^      - alert: (\S+)$", body, re.MULTILINE)
    }


@dataclass(kw_only=True)
class Watch:
    """What has fired, and since when."""

    process: Process
    baseline: Path
    """Further rules, which Prometheus reads at `reload`."""
    firing: frozenset[Firing] = frozenset()
    seen: set[Firing] = field(default_factory=set)
    """All that ever fired."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def reload(self) -> None:
        """Prometheus reads its rules again."""
        self.process.signal(signal.SIGHUP)

    async def follow(self) -> None:
        """Asks Prometheus what fires, until it is cancelled."""
        async with httpx.AsyncClient(base_url=self.process.url, timeout=30) as client:
            while True:
                found = (await client.get("/api/v1/alerts")).raise_for_status().json()["data"]["alerts"]
                labels = [each["labels"] for each in found if each["state"] == "firing"]
                await self.take(frozenset((each["alertname"], each.get("job", ANY_JOB)) for each in labels))
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

    async def wait_for_value(self, query: str, claim: Callable[[float], bool], seconds: float) -> None:
        """Returns when the query's first value is as claimed. Raises SilentAlertError."""
        try:
            async with asyncio.timeout(seconds), httpx.AsyncClient(base_url=self.process.url, timeout=30) as client:
                while True:
                    answer = (await client.get("/api/v1/query", params={"query": query})).raise_for_status().json()
                    found = answer["data"]["result"]
                    if found and claim(float(found[0]["value"][1])):
                        return
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise SilentAlertError(f"never as it was to be: {query}") from None


@asynccontextmanager
async def watching(rules: str, targets: Mapping[str, int], folder: Path) -> AsyncIterator[Watch]:
    """Starts Prometheus, which scrapes the port of each job, and follows it. Raises StartError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yml").write_text(rules)
    baseline, port = folder / "baseline.yml", free_port()
    baseline.write_text("groups: []\n")
    (folder / "prometheus.yml").write_text(json.dumps(_configuration(targets)))  # JSON is YAML
    command = [
        find_program("prometheus"), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address={LOOPBACK}:{port}",
    ]  # fmt: skip
    with running(command, folder, port=port, ready="/-/ready") as process:
        watch = Watch(process=process, baseline=baseline)
        async with in_background(watch.follow()):
            yield watch


def _configuration(targets: Mapping[str, int]) -> dict[str, object]:
    each, often = (f"{seconds * 1000:.0f}ms" for seconds in (_SCRAPE_SECONDS, _EVALUATION_SECONDS))
    return {
        "global": {"scrape_interval": each, "scrape_timeout": each, "evaluation_interval": often},
        "rule_files": ["rules.yml", "baseline.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]} for job, port in targets.items()
        ],
    }
