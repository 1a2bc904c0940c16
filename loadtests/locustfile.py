"""The load test as Locust runs it: options, users, shape, and the gate that sets the exit code.

The scenario `steady` runs it; without it: `locust --headless -f loadtests/locustfile.py --host http://127.0.0.1:3000`.
"""

import sys
import time
from dataclasses import fields
from typing import Any

import psutil
from grpc.experimental.gevent import init_gevent
from locust import LoadTestShape, events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from turnscore_load.machine import ForeignHostError, port_of
from turnscore_load.scenarios.steady import Steady
from turnscore_load.traffic import TrafficSettings
from turnscore_load.users.budgets import (
    LoadShape,
    broken_budgets,
    measure,
    read_budgets,
    read_mix,
    report,
)  # fmt: skip
from turnscore_load.users.users import CLIENTS, USERS, BatchUser, ConversationUser, FloodUser, GrpcUser, StreamUser

# What Locust looks for in this file.
__all__ = ["BatchUser", "ConversationUser", "FloodUser", "GrpcUser", "OneShape", "StreamUser"]

init_gevent()  # after Locust has patched the process and before anything of gRPC is made


OPTIONS = (
    "shape", "seconds", "mix", "pace", "seed", "repeat_share", "scorers", "deadline_ms", "api", "grpc_port", "budgets",
)  # fmt: skip


class OneShape(LoadTestShape):
    """The shape that the options name, set when they are read."""

    shape: LoadShape

    def tick(self) -> tuple[int, float] | None:
        """The users of this moment, who come within a second; None at the end."""
        users = self.shape.users_at(self.get_run_time())  # type: ignore[no-untyped-call]
        return None if users is None else (users, float(self.shape.users))


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def add_options(parser: LocustArgumentParser, **_: Any) -> None:
    """Those of the scenario `steady`."""
    group = parser.add_argument_group("turnscore")
    for each in fields(Steady):
        if each.name in OPTIONS:
            choices = sorted(CLIENTS) if each.name == "api" else None
            name = f"--{each.name.replace('_', '-')}"
            group.add_argument(name, type=type(each.default), default=each.default, choices=choices)


@events.init.add_listener  # type: ignore[untyped-decorator]
def set_up(environment: Environment, **_: Any) -> None:
    """Checks the options before a single user starts; ends the process where one makes no sense."""
    options: Any = environment.parsed_options
    shape_class = environment.shape_class
    assert isinstance(shape_class, OneShape)
    try:
        port_of(environment.host or "")
        mix = read_mix(options.mix, USERS)
        shape_class.shape = LoadShape(name=options.shape, users=sum(mix.values()), seconds=options.seconds)
        scorers = tuple(name.strip() for name in options.scorers.split(",") if name.strip())
        options.traffic = TrafficSettings(
            seed=options.seed, repeat_share=options.repeat_share, scorers=scorers, deadline_ms=options.deadline_ms
        )
        if options.pace <= 0:
            raise ValueError("the pace must be more than 0")
        budgets = read_budgets(options.budgets)
    except (ForeignHostError, ValueError, OSError) as error:
        sys.exit(f"load: {error}")
    environment.user_classes = [USERS[kind] for kind in mix]
    for kind, users in mix.items():
        USERS[kind].weight = users
    process = psutil.Process()
    before, started_at = sum(process.cpu_times()[:2]), time.monotonic()

    def judge(**_: Any) -> None:
        """Prints the table and whether the budgets were kept, and sets Locust's exit code."""
        rows = measure(environment.stats.entries.values(), list(mix), options.seconds)
        broken = broken_budgets(budgets, options.shape, rows)
        if environment.runner is not None:
            broken += [f"{each['count']} times in the load test itself: {each['msg']}"
                       for each in environment.runner.exceptions.values()]  # fmt: skip
        share = 100 * (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - started_at)
        sys.stdout.write(f"\n{report(rows, broken)}\n\nThe load generator used {share:.0f} % of one CPU.\n")
        environment.process_exit_code = 1 if broken else 0

    environment.events.quitting.add_listener(judge)  # type: ignore[no-untyped-call]
