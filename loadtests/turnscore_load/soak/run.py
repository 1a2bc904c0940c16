"""Soak: a long Locust run while the service's processes are watched; growth is a failure."""

from collections.abc import Callable
from types import MappingProxyType

from turnscore_load.sampling import ProcessesChangedError, Sampler, write_csv
from turnscore_load.soak.plots import plot_samples
from turnscore_load.steadiness import growths, soak_windows
from turnscore_load.target import Target
from turnscore_load.users.locust_run import LocustRun

SOAK_SETTINGS = MappingProxyType({"TURNSCORE_CACHE__LOCAL_MAX_BYTES": str(2 * 1024 * 1024)})
"""Of a service that is started for it: its cache is full before the first window, and hides no growth."""
_SAMPLE_SECONDS = 1.0
_LEAST_SAMPLES = 100
"""In a run too short for one a second."""


def run_soak(run: LocustRun, service: Target, say: Callable[[str], None]) -> bool:
    """Whether the budgets were kept and nothing grew. Writes `soak_samples.csv` and `soak.png` among the reports."""
    processes = service.processes()
    with Sampler(processes, min(_SAMPLE_SECONDS, run.seconds / _LEAST_SAMPLES)) as sampler:
        is_in_budget = run.run() == 0
    write_csv(sampler.samples, run.reports / "soak_samples.csv")
    first, last = soak_windows(run.seconds)
    plot_samples(sampler.samples, (first, last), run.reports / "soak.png")
    say(f"\nMedians of seconds {first[0]:.0f} to {first[1]:.0f} and {last[0]:.0f} to {last[1]:.0f}:")
    try:
        sampler.check()
        if {each.pid for each in service.processes()} != {each.pid for each in processes}:
            raise ProcessesChangedError("the service's processes are not those that it began with")
        found = growths(sampler.samples, first, last)
    except (ProcessesChangedError, ValueError) as error:
        say(f"- BROKEN {error}")
        return False
    for growth in found:
        say(f"- {'kept' if growth.is_kept else 'BROKEN'} {growth}")
    say(f"\nReports: {run.reports}/soak.html, soak.png, soak_samples.csv")
    return is_in_budget and all(growth.is_kept for growth in found)
