"""Runs a load test against the service on this machine; starts one where none runs. `make load` calls it."""

import asyncio
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from turnscore_load.address import LOOPBACK, ForeignHostError, Ports, port_of
from turnscore_load.alerts.run import RULES, run_alerts, silent_alerts
from turnscore_load.alerts.run import report as alerts_report
from turnscore_load.alerts.watch import SilentAlertError
from turnscore_load.conclusion import conclude
from turnscore_load.hostile.attacks import attack_all, silence_seconds
from turnscore_load.hostile.neighbours import beside_flood
from turnscore_load.hostile.report import checks as hostile_checks
from turnscore_load.hostile.report import report as hostile_report
from turnscore_load.overload.report import checks, report
from turnscore_load.overload.run import OverloadSettings, TooMuchError, run_overload
from turnscore_load.programs import NoProgramError
from turnscore_load.replicas.run import checks as replicas_checks
from turnscore_load.replicas.run import report as replicas_report
from turnscore_load.replicas.run import run_replicas
from turnscore_load.sampling import ProcessesChangedError, write_csv
from turnscore_load.soak.run import SOAK_SETTINGS, run_soak
from turnscore_load.streams.report import checks as streams_checks
from turnscore_load.streams.report import report as streams_report
from turnscore_load.streams.run import STREAMS_SETTINGS, StreamsSettings, StreamsTest
from turnscore_load.switches.report import checks as switches_checks
from turnscore_load.switches.report import report as switches_report
from turnscore_load.switches.run import SwitchesSettings, run_switches
from turnscore_load.target import NO_SETTINGS, NoServiceError, Target, target
from turnscore_load.users.locust_run import BUDGETS, DoorName, LocustRun
from turnscore_load.users.mix import DEFAULT_MIX
from turnscore_load.users.shapes import ShapeName

BENTOML = Path(".venv/bin/bentoml")
SERVE = Path(".venv/bin/turnscore")
REPORTS = Path("build/load")

app = typer.Typer(add_completion=False)


@app.callback()
def stop_cleanly() -> None:
    """Load tests of the service on this machine."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what was started is stopped


Host = Annotated[str, typer.Option(help="Only 127.0.0.1 is taken.")]
Port = Annotated[int, typer.Option(help="Port of a running service; where there is none, one is started.")]
GrpcPort = Annotated[int, typer.Option(help="gRPC port of that service.")]
Bentoml = Annotated[Path, typer.Option(help="The bentoml command that starts one.")]
Reports = Annotated[Path, typer.Option(help="Folder of the reports.")]
Scorers = Annotated[str, typer.Option(help="Scorers, separated by commas; empty: all that are loaded.")]
Mix = Annotated[str, typer.Option(help="Users of each kind: conversation, flood, batch, grpc, stream.")]
Pace = Annotated[float, typer.Option(help="2 makes the people twice as fast as people are.")]
BudgetFile = Annotated[Path, typer.Option(help="File of the budgets.")]


@app.command()
def replicas(
    serve: Annotated[Path, typer.Option(help="The turnscore command that starts each.")] = SERVE,
    reports: Reports = REPORTS,
) -> None:
    """Three services behind haproxy with one Redis: one is killed, all restart, the Redis is lost, one is slow."""
    found, most = uvloop.run(run_replicas(serve, reports / "replicas"))
    conclude(reports / "replicas.md", replicas_report(found, most), replicas_checks(found))


@app.command()
def switches(
    serve: Annotated[Path, typer.Option(help="The turnscore command that starts the service.")] = SERVE,
    count: Annotated[int, typer.Option(help="Switches that succeed, and as many that are refused.", min=2)] = 50,
    load: Annotated[float, typer.Option(help="Share of what the service carries.", min=0.05, max=1.0)] = 0.4,
    reports: Reports = REPORTS,
) -> None:
    """Switches the model of a service under load again and again, and has it refuse broken versions as often."""
    settings = SwitchesSettings(serve=serve, folder=reports.absolute() / "switches", count=count, load=load)
    found = uvloop.run(run_switches(settings))
    conclude(reports / "switches.md", switches_report(found), switches_checks(found))


@app.command()
def alerts(
    serve: Annotated[Path, typer.Option(help="The turnscore command that starts each service.")] = SERVE,
    reports: Reports = REPORTS,
) -> None:
    """Makes the cause of every alert in real services beside a real Prometheus, and sees each fire and clear."""
    rules, folder = RULES.read_text(), reports / "alerts"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        found, besides, seconds = asyncio.run(run_alerts(serve, folder.absolute(), typer.echo))
    except (SilentAlertError, NoProgramError) as error:
        sys.exit(f"alerts: {error}; logs are in {folder}")
    text = alerts_report(found, besides, seconds, rules)
    (reports / "alerts.md").write_text(text)
    typer.echo(text)
    raise typer.Exit(1 if silent_alerts(found, rules) else 0)


@app.command()
def load(
    shape: Annotated[ShapeName, typer.Option(help="Shape of the number of users.")] = "steady",
    seconds: Annotated[float, typer.Option(help="Duration in seconds.")] = 40.0,
    mix: Mix = DEFAULT_MIX,
    pace: Pace = 1.0,
    repeat_share: Annotated[float, typer.Option(help="Share of the items that were asked before.")] = 0.0,
    scorers: Scorers = "",
    deadline_ms: Annotated[int, typer.Option(help="Deadline of every item.")] = 5000,
    door: Annotated[DoorName, typer.Option(help="The door of those users who are not of gRPC anyway.")] = "http",
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 1,
    budgets: BudgetFile = BUDGETS,
    host: Host = LOOPBACK,
    port: Port = 3000,
    grpc_port: GrpcPort = 50_051,
    bentoml: Bentoml = BENTOML,
    reports: Reports = REPORTS,
) -> None:
    """Runs one shape with Locust and holds it against the budgets; the exit code says whether they were kept."""
    with _target(host, port, bentoml, reports, grpc_port) as found:
        run = LocustRun(
            url=found.url,
            shape=shape,
            seconds=seconds,
            reports=reports,
            mix=mix,
            pace=pace,
            repeat_share=repeat_share,
            scorers=scorers,
            deadline_ms=deadline_ms,
            seed=seed,
            budgets=budgets,
            grpc_port=found.grpc_port,
            door=door,
        )
        code = run.run()
    typer.echo(f"Reports: {reports}/{shape}.html, {reports}/{shape}_stats.csv")
    raise typer.Exit(code)


@app.command()
def soak(
    minutes: Annotated[float, typer.Option(min=0.2, max=120, help="Duration in minutes.")] = 15.0,
    mix: Mix = DEFAULT_MIX,
    pace: Pace = 1.0,
    scorers: Scorers = "",
    budgets: BudgetFile = BUDGETS,
    host: Host = LOOPBACK,
    port: Port = 3000,
    grpc_port: GrpcPort = 50_051,
    bentoml: Bentoml = BENTOML,
    reports: Reports = REPORTS,
) -> None:
    """Watches the service's memory, file handles and threads while it serves; growth sets the exit code."""
    with _target(host, port, bentoml, reports, grpc_port, SOAK_SETTINGS) as found:
        run = LocustRun(
            url=found.url,
            shape="soak",
            seconds=60 * minutes,
            reports=reports,
            mix=mix,
            pace=pace,
            scorers=scorers,
            budgets=budgets,
            grpc_port=found.grpc_port,
        )
        is_kept = run_soak(run, found, typer.echo)
    raise typer.Exit(0 if is_kept else 1)


@app.command()
def overload(
    factor: Annotated[float, typer.Option(min=1, max=50, help="Load, as a multiple of the peak goodput.")] = 10.0,
    seconds: Annotated[float, typer.Option(min=6, max=600, help="Duration in seconds.")] = 60.0,
    stage_seconds: Annotated[
        float, typer.Option(min=1, max=60, help="Seconds of each step of the search for the peak.")
    ] = 6.0,
    deadline_ms: Annotated[int, typer.Option(min=50, max=30_000, help="Deadline of every request.")] = 1000,
    scorers: Scorers = "",
    host: Host = LOOPBACK,
    port: Port = 3000,
    bentoml: Bentoml = BENTOML,
    reports: Reports = REPORTS,
) -> None:
    """Sends many times more than the service can carry; the exit code says whether it stayed honest."""
    settings = OverloadSettings(
        factor=factor,
        seconds=seconds,
        stage_seconds=stage_seconds,
        deadline_ms=deadline_ms,
        scorers=tuple(filter(None, scorers.split(","))),
    )
    with _target(host, port, bentoml, reports) as found, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            run = runner.run(run_overload(found.port, found.processes(), settings, typer.echo))
        except (TooMuchError, ProcessesChangedError) as error:
            sys.exit(f"overload: {error}")
    write_csv(run.samples, reports / "overload_samples.csv")
    verdicts = checks(run)
    conclude(reports / "overload.md", report(run, verdicts), verdicts)


@app.command()
def streams(
    number: Annotated[int, typer.Option("--streams", help="Conversations open at once.")] = 1000,
    connections: Annotated[int, typer.Option(help="Connections that they share.")] = 50,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="Seconds for which they talk.")] = 60.0,
    pace: Pace = 1.0,
    cut_share: Annotated[float, typer.Option(help="Share of the connections that is cut in the middle.")] = 0.3,
    workers: Annotated[int, typer.Option(min=1, max=16, help="Workers of the service, where one is started.")] = 2,
    scorers: Annotated[str, typer.Option(help="Scorers, separated by commas.")] = "engagement",
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 1,
    settle_seconds: Annotated[float, typer.Option(min=0.5, help="Rest before memory is read.")] = 4.0,
    host: Host = LOOPBACK,
    port: Port = 3000,
    grpc_port: GrpcPort = 50_051,
    bentoml: Bentoml = BENTOML,
    reports: Reports = REPORTS,
) -> None:
    """Holds very many conversations open and cuts some; the exit code says whether all were answered and none stays."""
    names = tuple(name.strip() for name in scorers.split(",") if name.strip())
    try:
        settings = StreamsSettings(
            streams=number,
            connections=connections,
            seconds=seconds,
            pace=pace,
            cut_share=cut_share,
            scorers=names,
            seed=seed,
            settle_seconds=settle_seconds,
        )
    except ValueError as error:
        sys.exit(f"streams: {error}")
    with _target(
        host, port, bentoml, reports, grpc_port, {**STREAMS_SETTINGS, "TURNSCORE_WORKERS": str(workers)}
    ) as found:
        test = StreamsTest(Ports(found.port, found.grpc_port), found.processes(), settings, typer.echo)
        try:
            run = asyncio.run(test.run())
        except ProcessesChangedError as error:
            sys.exit(f"streams: {error}")
    write_csv(run.samples, reports / "streams_samples.csv")
    verdicts = streams_checks(run)
    conclude(reports / "streams.md", streams_report(run, verdicts), verdicts)


@app.command()
def hostile(
    seconds: Annotated[float, typer.Option(min=1, max=120, help="Seconds of each flood.")] = 30.0,
    scorer: Annotated[str, typer.Option(help="The scorer that is flooded.")] = "engagement",
    host: Host = LOOPBACK,
    port: Port = 3000,
    bentoml: Bentoml = BENTOML,
    reports: Reports = REPORTS,
) -> None:
    """Does what a hostile caller would, bounded; the exit code says whether others noticed more than is promised."""
    with _target(host, port, bentoml, reports) as found, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        control = silence_seconds()
        typer.echo("every form of request at its extremes, connections, headers, frames")
        attacks = attack_all(found.port, found.processes())
        besides = []
        for kind in ("fresh", "known"):
            typer.echo(f"a neighbour beside a flood of {kind} batches")
            besides.append(runner.run(beside_flood(found.port, scorer, kind, seconds)))
    verdicts = hostile_checks(besides, attacks, control)
    conclude(reports / "hostile.md", hostile_report(verdicts, control), verdicts)


@contextmanager
def _target(
    host: str,
    port: int,
    bentoml: Path,
    reports: Path,
    grpc_port: int = 50_051,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[Target]:
    """The service, with its bundles printed; the end of the process with a sentence if there is none."""
    reports.mkdir(parents=True, exist_ok=True)
    try:
        checked = port_of(f"http://{host}:{port}")
        with target(checked, bentoml, reports / "service.log", settings, grpc_port) as found:
            typer.echo(f"{found.url}, {'started for this' if found.started else 'running'}: {', '.join(found.models)}")
            yield found
    except (NoServiceError, ForeignHostError) as error:
        sys.exit(f"load: {error}")


if __name__ == "__main__":
    app()
