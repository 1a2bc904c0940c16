"""Puts users on a service in a steady, ramp or spike shape and compares what they saw with the budgets."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from turnscore_load import users
from turnscore_load.results import Check, table
from turnscore_load.scenario import Found, TargetScenario
from turnscore_load.services import LoadedService
from turnscore_load.traffic import TrafficSettings


@dataclass
class UsersRun:
    """What every kind of user saw, the budgets that it broke, and why calls failed."""

    measured: list[users.Measured]
    broken: list[str]
    failures: Counter[str]
    generator_share: float  # of one CPU, that the users took


@dataclass(kw_only=True)
class UsersScenario(TargetScenario[Found]):
    """One whose load is people and programs, in one shape."""

    mix: Annotated[str, Option(help="Users by kind: conversation, flood, batch, grpc, stream.")] = users.DEFAULT_MIX
    pace: Annotated[float, Option(min=0.01, help="2 makes the people twice as fast as people are.")] = 1.0
    scorers: Annotated[str, Option(help="Scorers, separated by commas; empty: all that are loaded.")] = ""
    budgets: Annotated[Path, Option(help="File of the budgets.")] = users.BUDGETS

    def run_users(
        self,
        service: LoadedService,
        shape: users.ShapeName,
        seconds: float,
        api: users.ClientApi = "http",
        **traffic: Any,
    ) -> UsersRun:
        """Raises ScenarioError for a mix or budgets that make no sense."""
        mix, budgets = users.read_mix(self.mix), users.read_budgets(self.budgets)
        scorers = tuple(name.strip() for name in self.scorers.split(",") if name.strip())
        asked = TrafficSettings(scorers=scorers, **traffic)
        settings = users.UserSettings(
            port=service.port, grpc_port=service.grpc_port, api=api, pace=self.pace, traffic=asked
        )
        before, began_at = time.process_time(), time.monotonic()
        stages = asyncio.run(users.run_users(settings, mix, shape, seconds))
        share = (time.process_time() - before) / (time.monotonic() - began_at)
        measured = users.measure(stages)
        failures = sum((stage.failures() for stage in stages.values()), Counter[str]())
        return UsersRun(measured, users.broken_budgets(budgets, shape, measured), failures, share)


def report_users(found: UsersRun) -> Iterator[str]:
    head = ["user", "answered", "refused", "expired", "failed", "answered/s", "p50 ms", "p95 ms", "p99 ms"]
    rows = []
    for each in found.measured:
        counts = [each.answered, each.refused, each.expired, each.failed]
        times = [f"{ms:.0f}" if each.answered else "-" for ms in (each.p50_ms, each.p95_ms, each.p99_ms)]
        rows.append([each.kind, *map(str, counts), f"{each.answered_per_second:.2f}", *times])
    yield table(head, rows, texts=1)
    yield "\n".join(f"- failed {count} times: {why}" for why, count in found.failures.most_common())
    yield f"The load generator used {100 * found.generator_share:.0f} % of one CPU."


def check_budgets(found: UsersRun) -> Check:
    return Check("every budget is kept", "; ".join(found.broken) or "all", not found.broken)


@dataclass(kw_only=True)
class Steady(UsersScenario[UsersRun]):
    """Run one shape."""

    shape: Annotated[Literal["steady", "ramp", "spike"], Option(help="Shape of the number of users.")] = "steady"
    seconds: Annotated[float, Option(min=1, max=users.MAX_SECONDS, help="Duration in seconds.")] = 40.0
    repeat_share: Annotated[float, Option(min=0, max=0.99, help="Share of the items that were asked before.")] = 0.0
    deadline_ms: Annotated[int, Option(help="Deadline of every item.")] = 5000
    api: Annotated[Literal["http", "grpc"], Option(help="The API of users that are not of gRPC anyway.")] = "http"
    seed: Annotated[int, Option(help="Seed of the traffic.")] = 1

    def measure(self) -> UsersRun:
        traffic = {name: getattr(self, name) for name in ("repeat_share", "deadline_ms", "seed")}
        with self.target() as service:
            return self.run_users(service, self.shape, self.seconds, self.api, **traffic)

    def report(self, found: UsersRun) -> Iterator[str]:
        return report_users(found)

    def checks(self, found: UsersRun) -> Iterator[Check]:
        yield check_budgets(found)
