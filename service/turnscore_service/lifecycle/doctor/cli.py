"""`turnscore-doctor`: prints the diagnosis; exit status 1 where what is configured cannot run."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from turnscore_core.inference.machine import ThisMachine
from turnscore_models.version_option import version_option

from turnscore_service.lifecycle.doctor.diagnosis import Diagnosis, GpuFacts, diagnose
from turnscore_service.settings.service import read_settings

_GIGABYTE = 1 << 30

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    device: Annotated[str, typer.Option(help="Device to check; default: TURNSCORE_RUNTIME__DEVICE.")] = "",
    load: Annotated[bool, typer.Option("--load", help="Also load every graph and score its self-test.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    _version: Annotated[bool, version_option("turnscore")] = False,
) -> None:
    """Report what this machine has, which graph of each scorer would run where, and what is wrong."""
    settings = read_settings({"runtime": {"device": device}} if device else {})
    found = diagnose(settings, ThisMachine(), with_load=load)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "can_serve": found.can_serve}, indent=2))
    else:
        print_diagnosis(found, Console(highlight=False))
    raise typer.Exit(0 if found.can_serve else 1)


def print_diagnosis(found: Diagnosis, console: Console) -> None:
    """Three short tables and the problems."""
    console.print(_machine_table(found))
    if found.scorers:
        console.print(_scorer_table(found))
    for problem in found.problems:
        mark = "[bold red]problem[/]" if problem.is_fatal else "[bold yellow]warning[/]"
        console.print(f"{mark} {escape(problem.text)}", soft_wrap=True)
    verdict = "[bold green]ready to serve[/]" if found.can_serve else "[bold red]the service would not be ready[/]"
    console.print(verdict)


def _machine_table(found: Diagnosis) -> Table:
    table = Table("what", "found", show_header=False, box=None, pad_edge=False)
    runtime = found.runtime
    rows = [
        ("turnscore", f"{found.turnscore}, Python {found.python}, {found.system}"),
        ("extras", ", ".join(found.extras) or "none"),
        ("CPUs usable", str(found.cpus)),
        ("memory", f"{_gigabytes(found.memory_available_bytes)} of {_gigabytes(found.memory_bytes)} available"),
        ("NVIDIA driver", _describe_driver(found)),
        *((f"cuda:{index}", _describe_gpu(gpu)) for index, gpu in enumerate(found.gpus)),
        ("ONNX Runtime", f"{runtime.version} ({', '.join(runtime.packages)})" if runtime else "none"),
    ]
    if runtime:
        rows += [("  built for CUDA", runtime.built_for_cuda or "no"), ("  providers", ", ".join(runtime.providers))]
        rows += [("  cuda lacks", runtime.cuda_lacks)] if runtime.cuda_lacks else []
    rows.append(("device asked for", found.configured_device))
    rows += [(f"  worker {number}", device) for number, device in enumerate(found.worker_devices, start=1)]
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _scorer_table(found: Diagnosis) -> Table:
    table = Table("bundle", "graph", "device", "provider")
    for each in found.scorers:
        table.add_row(*(escape(text or "-") for text in (each.bundle, each.graph, each.device, each.provider)))
    return table


def _describe_driver(found: Diagnosis) -> str:
    if found.driver_cuda is None:
        return found.driver or "none"
    return f"{found.driver or 'of unknown version'}, CUDA up to {found.driver_cuda}"


def _describe_gpu(gpu: GpuFacts) -> str:
    free = "" if gpu.free_bytes is None else f"{_gigabytes(gpu.free_bytes)} free of "
    return f"{gpu.name}, {free}{_gigabytes(gpu.memory_bytes)}, compute capability {gpu.compute}"


def _gigabytes(count: int) -> str:
    return f"{count / _GIGABYTE:.1f} GiB"


if __name__ == "__main__":
    app()
