"""Watches a service's memory, file handles and threads under a long load of Locust's users; growth is a failure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from typer import Option

from turnscore_load.results import Check
from turnscore_load.sampling import ProcessesChangedError, Sampler, growths, soak_windows, write_csv
from turnscore_load.scenarios.steady import LocustScenario

# Of a service that is started for it: its cache is full before the first window, and hides no growth.
_SETTINGS = {"TURNSCORE_CACHE__LOCAL_MAX_BYTES": str(2 * 1024 * 1024)}
_SAMPLE_SECONDS = 1.0


@dataclass(kw_only=True)
class Soak(LocustScenario[list[Check]]):
    """Compare the first window of a long load with the last. Writes soak_samples.csv, too."""

    minutes: Annotated[float, Option(min=0.2, max=120, help="Duration in minutes.")] = 15.0

    def measure(self) -> list[Check]:
        seconds = 60 * self.minutes
        first, last = soak_windows(seconds)
        with self.target(_SETTINGS) as service:
            processes = service.processes()
            # in a run too short for one a second
            with Sampler(processes, min(_SAMPLE_SECONDS, seconds / 100)) as sampler:
                checks = [self.run_locust(service, "soak", seconds)]
            try:
                sampler.check()
                if {each.pid for each in service.processes()} != {each.pid for each in processes}:
                    raise ProcessesChangedError("the service's processes are not those that it began with")
                found = growths(sampler.samples, first, last)
                checks += [Check(f"{each.name} did not grow", str(each), each.is_kept) for each in found]
            except (ProcessesChangedError, ValueError) as error:
                checks.append(Check("the service could be watched", str(error), False))
        write_csv(sampler.samples, self.reports / "soak_samples.csv")
        return checks

    def report(self, found: list[Check]) -> Iterator[str]:
        first, last = soak_windows(60 * self.minutes)
        yield f"Medians of seconds {first[0]:.0f} to {first[1]:.0f} and {last[0]:.0f} to {last[1]:.0f}."
        yield f"Reports: {self.reports}/soak.html, soak_samples.csv"

    def checks(self, found: list[Check]) -> list[Check]:
        return found
