"""What a scenario is: its options, what it measures, the page that it makes of it, and its claims."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Generic, TypeVar

import typer
from typer import Option

from turnscore_load.machine import LOOPBACK, port_of
from turnscore_load.processes import Process, StartError, started
from turnscore_load.results import Check, ScenarioResult
from turnscore_load.services import NO_SETTINGS, LoadedService, models_at, service_process, wait_for_workers

Found = TypeVar("Found")


@dataclass(kw_only=True)
class Scenario(Generic[Found]):
    """One measurement or load test: the dataclass in scenarios/NAME.py, which `loadtests/run.py NAME` runs.

    Its fields are its options, its docstring their help, and its methods make a result:

        @dataclass(kw_only=True)
        class Latency(TargetScenario[list[float]]):
            \"\"\"Measure the median of single requests.\"\"\"

            requests: Annotated[int, Option(min=20, help="Calls.")] = 300

            def measure(self) -> list[float]:             # starts what it needs, loads it, and ends it
                with self.target() as service:            # or self.started("name", settings): one of its own
                    return time_calls(service.port, self.requests)

            def report(self, found: list[float]) -> Iterator[str]:     # sentences, and tables by `results.table`
                yield f"p50 {median(found):.1f} ms."

            def checks(self, found: list[float]) -> Iterator[Check]:   # one that does not hold is exit code 1
                yield Check("p50 is at most 50 ms", f"{median(found):.1f} ms", median(found) <= 50)

    A ScenarioError of `measure` is printed, and exit code 1 too. `folder` is the scenario's own, for logs and copies.
    """

    serving: Annotated[Path, Option(help="Folder of the serving environment's programs.")] = Path(".venv/bin")
    reports: Annotated[Path, Option(help="Folder of the report, logs and everything else that is written.")] = Path(
        "build/load"
    )
    results: Annotated[Path | None, Option(help="Folder for the figures as NAME.json, too.")] = None
    machine: Annotated[str, Option(help="Name of the machine in the report.")] = ""

    command: str = field(default="", init=False)

    # Whether what was measured is kept as JSON; not where it holds each of very many calls.
    keeps_figures: ClassVar[bool] = True

    def measure(self) -> Found:
        """Does everything. Raises ScenarioError where it cannot go on."""
        raise NotImplementedError

    def report(self, found: Found) -> Iterable[str]:
        """The parts of the page: sentences and tables in Markdown."""
        return ()

    def checks(self, found: Found) -> Iterable[Check]:
        """Every claim about what was found."""
        return ()

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2].replace("_", "-")

    @property
    def folder(self) -> Path:
        return (self.reports / self.name).absolute()

    def run(self, command: str = "") -> ScenarioResult:
        self.command = command
        return self.write(self.measure())

    def write(self, found: Found) -> ScenarioResult:
        """Writes the page and the figures; a long `measure` does, too, with what it has until then."""
        result = ScenarioResult(scenario=self.name, command=self.command, parts=list(self.report(found)))
        result.checks, result.machine = list(self.checks(found)), self.machine or result.machine
        result.data = found if self.keeps_figures else None
        for folder in filter(None, (self.reports, self.results)):
            result.write(folder / f"{self.name}.json")
        (self.reports / f"{self.name}.md").write_text(result.markdown())
        return result

    def service(
        self, name: str, settings: Mapping[str, str] = NO_SETTINGS, *, program: str = "bentoml", clean: bool = True
    ) -> Process:
        """A service of its own on free ports that is not started yet; `program` is `bentoml` or `turnscore`."""
        return service_process(self.serving / program, self.folder / name, settings, clean=clean)

    def started(
        self, name: str, settings: Mapping[str, str] = NO_SETTINGS, *, clean: bool = True
    ) -> AbstractContextManager[Process]:
        """One of `bentoml`, ready, until the block ends. Raises StartError."""
        return started(self.service(name, settings, clean=clean))


@dataclass(kw_only=True)
class TargetScenario(Scenario[Found]):
    """One that loads a running service, or one that is started for it."""

    host: Annotated[str, Option(help="Only 127.0.0.1 is taken.")] = LOOPBACK
    port: Annotated[int, Option(help="Port of a running service; where there is none, one is started.")] = 3000
    grpc_port: Annotated[int, Option(help="gRPC port of that service.")] = 50_051

    @contextmanager
    def target(self, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[LoadedService]:
        """The service that is ready on those ports; where there is none, one started on free ports.

        The started one gets the settings, but for those that the environment has, and is stopped at the end. All its
        workers are ready. Raises StartError where it does not become so, and ForeignHostError.
        """
        port = port_of(f"http://{self.host}:{self.port}")
        with ExitStack() as stack:
            found = LoadedService(port=port, models=models_at(port), grpc_port=self.grpc_port)
            if not found.models:
                given = {name: os.environ.get(name, value) for name, value in settings.items()}
                process = stack.enter_context(started(service_process(self.serving / "bentoml", self.folder, given)))
                wait_for_workers(process, int(given.get("TURNSCORE_WORKERS", os.environ.get("TURNSCORE_WORKERS", "1"))))
                if not (models := models_at(process.port)):
                    raise StartError(f"what listens on {process.port} is no turnscore service")
                found = LoadedService(port=process.port, models=models, grpc_port=process.grpc_port, process=process)
            typer.echo(f"{found.url}, {'started for this' if found.process else 'running'}: {', '.join(found.models)}")
            yield found
