"""The GPU benchmark. `make bench-gpu` runs all of it; without the service it needs Python with torch, transformers,
onnx and onnxruntime-gpu alone, and nothing of turnscore installed, from a copy of the checkout:

    PYTHONPATH=loadtests:exporters:service python3 -m turnscore_bench.gpu

Weights are random. Load goes to 127.0.0.1 only.
"""

import argparse
import gc
import platform
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from turnscore_core.inference.devices import Device, ThisMachine, choose_devices, usable_cpus
from turnscore_core.inference.onnx_backend import DeviceError

from turnscore_bench.gpu.encoder_race import race_encoder
from turnscore_bench.gpu.fed_race import race_fed
from turnscore_bench.gpu.findings import Findings
from turnscore_bench.gpu.peaks import find_peaks
from turnscore_bench.gpu.shapes import FULL, TINY, Scale, Shape
from turnscore_bench.gpu.tables import tables
from turnscore_bench.harness import machine, page

COMMAND = "make bench-gpu"
_PACKAGES = ("torch", "transformers", "onnx", "onnxruntime-gpu", "onnxruntime")


def main(words: Sequence[str] | None = None) -> int:
    """Measures, writes `results.json` and `tables.md`; 1 where the device cannot be used or nothing was measured."""
    options = _parse(words)
    try:
        device = choose_devices(options.device, ThisMachine()).devices[0]
    except DeviceError as error:
        sys.stderr.write(f"{options.device} cannot be measured: {error}\n")
        return 1
    findings = Findings(conditions=_conditions(options, device))
    graphs = options.output / "graphs"
    for folder in (graphs, options.output / "bundles"):
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    graphs.mkdir(parents=True)
    scale = TINY if options.tiny else FULL
    if device.kind == "cpu":
        torch.set_num_threads(1 if options.tiny else usable_cpus())
    try:
        _measure(scale, device, graphs, options, findings)
    finally:
        _write(findings, options)
    sys.stdout.write(tables(findings) + "\n")
    return 0 if findings.rows and findings.fed else 1


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="turnscore_bench.gpu", description="Measures turnscore's models on a GPU.")
    parser.add_argument("--device", default="cuda:0", help="cuda:N or cpu")
    parser.add_argument("--tiny", action="store_true", help="small models and few runs: whether it works, no figures")
    parser.add_argument("--output", type=Path, default=Path("build/bench-gpu"), help="folder for JSON and tables")
    parser.add_argument("--page", type=Path, help="page whose tables are written anew")
    parser.add_argument("--models", default="", help="of the models, by commas; all when empty")
    parser.add_argument("--serving", type=Path, help="folder of the serving environment's bentoml; none: no service")
    parser.add_argument("--workers", default="1,4", help="numbers of worker processes of the encoder's service")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--machine", default="", help="the machine's name in the tables; empty: read from the system")
    options = parser.parse_args(words)
    options.output = options.output.resolve()
    return options


def _measure(scale: Scale, device: Device, graphs: Path, options: argparse.Namespace, findings: Findings) -> None:
    with_compile = not options.no_compile
    find_peaks(findings, device, scale.matmul, str(findings.conditions["device"]))
    if _is_wanted(scale.encoder, options):
        _say(scale.encoder.name)
        race_encoder(scale, device, graphs, findings, with_compile=with_compile)
        _release(device)
    for shape in scale.language_models:
        if _is_wanted(shape, options):
            _say(shape.name)
            findings.attempt(
                shape.name,
                lambda shape=shape: race_fed(  # type: ignore[misc]
                    scale, shape, device, graphs, findings, with_compile=with_compile
                ),
            )
            _release(device)
    if options.serving is None:
        findings.not_run["the service"] = "--serving names no environment of it"
    else:
        _serve(scale, device, options, findings)


def _serve(scale: Scale, device: Device, options: argparse.Namespace, findings: Findings) -> None:
    try:
        from turnscore_bench.gpu.served import Serving, serve_encoder, serve_fed
    except ImportError as error:
        findings.not_run["the service"] = f"turnscore is not installed beside the benchmark: {error}"
        return
    workers = [int(each) for each in options.workers.split(",")]
    serving = Serving(programs=options.serving.absolute(), device=device, output=options.output, workers=workers)
    if _is_wanted(scale.encoder, options):
        _say(f"the service with {scale.encoder.name}")
        findings.attempt(f"the service with {scale.encoder.name}", lambda: serve_encoder(scale, serving, findings))
    for shape in scale.language_models[:2]:  # the aims are the medium one's; the large one's rate is its own matter
        if _is_wanted(shape, options):
            _say(f"the service with {shape.name}")
            findings.attempt(
                f"the service with {shape.name}",
                lambda shape=shape: serve_fed(scale, shape, serving, findings),  # type: ignore[misc]
            )


def _release(device: Device) -> None:
    """Gives back the device memory of models that are gone, for the next one and for the service."""
    gc.collect()
    if device.kind == "cuda":
        torch.cuda.empty_cache()


def _is_wanted(shape: Shape, options: argparse.Namespace) -> bool:
    return not options.models or shape.name in options.models.split(",")


def _conditions(options: argparse.Namespace, device: Device) -> dict[str, object]:
    host = machine.describe(usable_cpus())
    name = ThisMachine().cuda_devices().gpus[device.index].name if device.kind == "cuda" else host
    where = options.machine or (name if device.kind == "cpu" else f"{name}, {host}")
    date = datetime.now(UTC).date().isoformat()
    versions = ", ".join(f"{package} {found}" for package in _PACKAGES if (found := _version(package)))
    conditions: dict[str, object] = {"device": name, "machine": where, "date": date, "versions": versions}
    reasons = ["tiny models"] * options.tiny + ["computed on the CPU"] * (device.kind == "cpu")
    if reasons:
        conditions["not_judged"] = " and ".join(reasons)
    caption = f"Measured on {where}, {date}, Python {platform.python_version()}, {versions}; random weights."
    return {**conditions, "caption": caption}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _write(findings: Findings, options: argparse.Namespace) -> None:
    findings.write(options.output / "results.json")
    text = tables(findings)
    (options.output / "tables.md").write_text(text + "\n", encoding="utf-8")
    if options.page:
        page.write_between_markers(options.page, text, page.markers(COMMAND))


def _say(what: str) -> None:
    sys.stderr.write(f"measuring {what}\n")


if __name__ == "__main__":
    sys.exit(main())
