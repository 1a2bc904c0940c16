"""Makes the cause of every alert in real services watched by a real Prometheus, and sees each fire and clear."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from turnscore_load.alert_causes import (
    LAST,
    OF_THE_BOT,
    ON_SERVICES,
    WITHIN_IT,
    Cause,
    Firing,
    SilentAlertError,
    Watch,
    World,
    alerts_of,
    build_world,
    shorten,
    watching,
)
from turnscore_load.fleet import STARTER
from turnscore_load.processes import in_background
from turnscore_load.results import Check, table
from turnscore_load.scenario import Scenario

RULES = Path("deploy/observability/rules/turnscore.yml")
_FIRE_SECONDS = 90.0
_CLEAR_SECONDS = 150.0  # both chosen: several times what a quiet machine takes
_QUIET_SECONDS = 120.0
MOST_SECONDS = 570.0  # of the whole run
_BASELINE_DIALOGUES = 300
_COMPARED = 'turnscore:drift_ratio{job="bot", against="baseline"}'
_LIVE_DIALOGUES = 'sum(turnscore_live_dialogues_total{job="bot", scorer="quality"})'


@dataclass(frozen=True, kw_only=True)
class ShownAlert:
    """One alert, how long after its cause it fired, and how long after the remedy it cleared."""

    alert: str
    cause: Cause
    fired_seconds: float
    cleared_seconds: float


@dataclass(frozen=True, kw_only=True)
class AlertsRun:
    """Every alert, what else fired, and the seconds that it took."""

    shown: list[ShownAlert]
    others: set[Firing]
    seconds: float


@dataclass(kw_only=True)
class Observability(Scenario[AlertsRun]):
    """Run every cause in turn."""

    keeps_figures = False

    def measure(self) -> AlertsRun:
        shutil.rmtree(self.folder, ignore_errors=True)
        return asyncio.run(run_alerts(self.serving / "turnscore", self.folder))

    def report(self, found: AlertsRun) -> list[str]:
        return report(found, RULES.read_text())

    def checks(self, found: AlertsRun) -> list[Check]:
        return [check(found.shown, RULES.read_text())]


async def run_alerts(serve: Path, folder: Path) -> AlertsRun:
    """Raises SilentAlertError for the first alert that is not as it should be, StartError for a missing program."""
    begun, rules = time.monotonic(), shorten(RULES.read_text())
    with build_world(serve.absolute(), STARTER, folder / "services") as world:
        try:
            async with asyncio.timeout(MOST_SECONDS), watching(rules, world.targets, folder / "prometheus") as watch:
                services, bot = await asyncio.gather(_on_services(world, watch), _of_the_bot(world, watch))
                found = [*services, *bot, *await _show(world, watch, LAST)]
                others = watch.seen - frozenset(each for one in found for each in one.cause.expected)
        except TimeoutError:
            raise SilentAlertError(f"the run took over {MOST_SECONDS:.0f} s") from None
    return AlertsRun(shown=found, others=others, seconds=time.monotonic() - begun)


async def _show(
    world: World, watch: Watch, cause: Cause, during: Callable[[], Awaitable[list[ShownAlert]]] | None = None
) -> list[ShownAlert]:
    """Makes the cause until its alerts fire, and waits until they clear. Raises SilentAlertError.

    Before, none of them may fire: what the start of the services set off has a while to clear.
    """
    await watch.wait_for(cause.expected, fires=False, seconds=_QUIET_SECONDS)
    typer.echo(cause.what)
    begun = time.monotonic()
    async with cause.block(world):
        fired = await watch.wait_for(cause.expected, fires=True, seconds=_FIRE_SECONDS)
        inner = await during() if during else []
        ended = time.monotonic()
    cleared = await watch.wait_for(cause.expected, fires=False, seconds=_CLEAR_SECONDS)
    return inner + [
        ShownAlert(alert=each[0], cause=cause, fired_seconds=fired[each] - begun, cleared_seconds=cleared[each] - ended)
        for each in sorted(cause.expected)
    ]


async def _on_services(world: World, watch: Watch) -> list[ShownAlert]:
    found: list[ShownAlert] = []
    for causes in ON_SERVICES:
        for shown in await asyncio.gather(*(_show(world, watch, cause) for cause in causes)):
            found += shown
    return found


async def _of_the_bot(world: World, watch: Watch) -> list[ShownAlert]:
    async def within_it() -> list[ShownAlert]:
        """After a baseline of the service's own counts, taken as an operator takes it."""
        await watch.wait_for_value(_LIVE_DIALOGUES, lambda value: value >= _BASELINE_DIALOGUES, _FIRE_SECONDS)
        kept = watch.baseline.with_name("baseline.json")
        command = [str(Path(sys.executable).with_name("turnscore")), "drift", "baseline", str(kept)]
        command += ["--metrics", world.services["bot"].url, "--rules", str(watch.baseline)]
        await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
        watch.reload()
        await watch.wait_for_value(_COMPARED, lambda value: value < 1, _FIRE_SECONDS)
        return [each for cause in WITHIN_IT for each in await _show(world, watch, cause)]

    async with in_background(world.talker.talk()):
        return await _show(world, watch, OF_THE_BOT, within_it)


def check(found: Sequence[ShownAlert], rules: str) -> Check:
    silent = [alert for alert in alerts_of(rules) if alert not in {each.alert for each in found}]
    return Check("every alert fires and clears", ", ".join(silent) or f"all {len(found)}", not silent)


def report(found: AlertsRun, rules: str) -> list[str]:
    by_alert, rows = {each.alert: each for each in found.shown}, []
    for alert, factor in alerts_of(rules).items():
        cells = ["NONE", "-", "-", "-"]
        if one := by_alert.get(alert):
            cells = [one.cause.what, f"{one.fired_seconds:.0f} s", one.cause.remedy, f"{one.cleared_seconds:.0f} s"]
        rows.append([alert, *cells, f"{factor:g}"])
    head = ["alert", "cause", "fired after", "remedy", "cleared after", "times shortened by"]
    names = ", ".join(f"{alert} ({job or 'no job'})" for alert, job in sorted(found.others)) or "none"
    return [f"{found.seconds:.0f} s in all.", table(head, rows), f"Other alerts that fired: {names}."]
