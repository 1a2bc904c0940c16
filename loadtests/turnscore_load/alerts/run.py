"""The run: every cause in turn, when its alerts fired and cleared, and the table of it."""

import asyncio
import platform
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from turnscore_load.alerts.causes import LAST, OF_THE_BOT, ON_SERVICES, WITHIN_IT, Cause
from turnscore_load.alerts.short_rules import alerts_of, shorten
from turnscore_load.alerts.watch import Firing, SilentAlertError, Watch, watching
from turnscore_load.alerts.world import World, build_world
from turnscore_load.markdown import table
from turnscore_load.programs import find_programs

RULES = Path("deploy/observability/rules/turnscore.yml")
STARTER = Path("model_store/starter")
_FIRE_SECONDS = 90.0
_CLEAR_SECONDS = 150.0
"""Both chosen: several times what a quiet machine takes."""
_QUIET_SECONDS = 120.0
MOST_SECONDS = 570.0
"""Of the whole run."""
_BASELINE_DIALOGUES = 300
_COMPARED = 'turnscore:drift_ratio{job="bot", against="baseline"}'


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One alert, how long after its cause it fired, and how long after the remedy it cleared."""

    alert: str
    cause: Cause
    fired_seconds: float
    cleared_seconds: float


@dataclass(kw_only=True)
class Play:
    """The run as it goes."""

    world: World
    watch: Watch
    say: Callable[[str], object]

    async def show(self, cause: Cause, during: Callable[[], Awaitable[list[Outcome]]] | None = None) -> list[Outcome]:
        """Makes the cause until its alerts fire, and waits until they clear. Raises SilentAlertError.

        Before, none of them may fire: what the start of the services set off has a while to clear.
        """
        await self.watch.wait_for(cause.expected, fires=False, seconds=_QUIET_SECONDS)
        self.say(cause.what)
        begun = time.monotonic()
        async with cause.block(self.world):
            fired = await self.watch.wait_for(cause.expected, fires=True, seconds=_FIRE_SECONDS)
            inner = await during() if during else []
            ended = time.monotonic()
        cleared = await self.watch.wait_for(cause.expected, fires=False, seconds=_CLEAR_SECONDS)
        return inner + [
            Outcome(
                alert=each[0], cause=cause, fired_seconds=fired[each] - begun, cleared_seconds=cleared[each] - ended
            )
            for each in sorted(cause.expected)
        ]

    async def on_services(self) -> list[Outcome]:
        """What goes wrong with services."""
        rounds = [await asyncio.gather(*map(self.show, causes)) for causes in ON_SERVICES]
        return [each for causes in rounds for found in causes for each in found]

    async def of_the_bot(self) -> list[Outcome]:
        """What goes wrong with what a bot says."""
        async with _talking(self.world):
            return await self.show(OF_THE_BOT, self._within_it)

    async def _within_it(self) -> list[Outcome]:
        await self._take_baseline()
        return [each for cause in WITHIN_IT for each in await self.show(cause)]

    async def _take_baseline(self) -> None:
        """As an operator does: by `turnscore drift baseline`, of the service's own counts."""
        said = 'sum(turnscore_said_dialogues_total{job="bot", scorer="quality"})'
        await self._until(said, lambda value: value >= _BASELINE_DIALOGUES)
        kept = self.watch.baseline.with_name("baseline.json")
        command = [str(Path(sys.executable).with_name("turnscore")), "drift", "baseline", str(kept)]
        command += ["--metrics", self.world.bot.url, "--rules", str(self.watch.baseline)]
        await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
        self.watch.reload()
        await self._until(_COMPARED, lambda value: value < 1)

    async def _until(self, query: str, claim: Callable[[float], bool]) -> None:
        try:
            async with asyncio.timeout(_FIRE_SECONDS):
                while (value := await self.watch.value_of(query)) is None or not claim(value):
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise SilentAlertError(f"never as it was to be: {query}") from None


@asynccontextmanager
async def _talking(world: World) -> AsyncIterator[None]:
    talking = asyncio.create_task(world.talker.talk())
    try:
        yield
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)


async def run_alerts(
    serve: Path, folder: Path, say: Callable[[str], object]
) -> tuple[list[Outcome], set[Firing], float]:
    """Every alert, what fired besides, and the seconds that it took.

    Raises SilentAlertError for the first alert that is not as it should be, NoProgramError where one is missing.
    """
    begun = time.monotonic()
    program, rules = find_programs("prometheus")["prometheus"], shorten(RULES.read_text())
    with build_world(serve.absolute(), STARTER.absolute(), folder / "services") as world:
        try:
            async with (
                asyncio.timeout(MOST_SECONDS),
                watching(program, rules, world.targets, folder / "prometheus") as watch,
            ):
                play = Play(world=world, watch=watch, say=say)
                of_services, of_the_bot = await asyncio.gather(play.on_services(), play.of_the_bot())
                found = [*of_services, *of_the_bot, *await play.show(LAST)]
                besides = watch.seen - frozenset(each for one in found for each in one.cause.expected)
        except TimeoutError:
            raise SilentAlertError(f"the run took over {MOST_SECONDS:.0f} s") from None
    return found, besides, time.monotonic() - begun


def silent_alerts(found: list[Outcome], rules: str) -> list[str]:
    """Alerts of the rules that the run did not show."""
    return [alert for alert in alerts_of(rules) if alert not in {each.alert for each in found}]


def report(found: list[Outcome], besides: set[Firing], seconds: float, rules: str) -> str:
    """The page that `make observability` prints, in the rules' order."""
    factors = alerts_of(rules)
    by_alert = {each.alert: each for each in found}
    where = f"{datetime.now(UTC):%Y-%m-%d}, {psutil.cpu_count()} CPUs ({platform.machine()}), {seconds:.0f} s in all."
    rows = []
    for alert, factor in factors.items():
        cells = ["NONE", "-", "-", "-"]
        if one := by_alert.get(alert):
            cells = [one.cause.what, f"{one.fired_seconds:.0f} s", one.cause.remedy, f"{one.cleared_seconds:.0f} s"]
        rows.append([alert, *cells, f"{factor:g}"])
    head = ["alert", "cause", "fired after", "remedy", "cleared after", "times shortened by"]
    others = ", ".join(f"{alert} ({job or 'no job'})" for alert, job in sorted(besides)) or "nothing"
    return "\n\n".join([where, table(head, rows), f"Besides fired: {others}."]) + "\n"
