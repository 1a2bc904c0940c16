"""Peaks: how many operations per second the device reaches in one large matmul, and what its maker promises."""

from functools import partial

import torch
from turnscore_core.inference.devices import Device

from turnscore_bench.gpu.bare import time_runs
from turnscore_bench.gpu.findings import Findings

# Specified: NVIDIA's data sheets, dense fp16 and bf16 with tensor cores; the longest name that fits counts.
NOMINAL = {
    "H200": 989e12, "H100": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "A100": 312e12, "A30": 165e12,
    "A10": 125e12, "L40S": 362e12, "L4": 121e12, "V100": 125e12, "T4": 65e12,
}  # fmt: skip


def find_peaks(findings: Findings, device: Device, size: int, name: str) -> None:
    """Measures fp16 and bf16, and looks the device up."""
    for dtype in (torch.float16, torch.bfloat16):
        findings.attempt(f"matmul in {dtype}", partial(_measure, findings, device, size, dtype))
    nominal = nominal_peak(name)
    if nominal is None:
        findings.not_run["nominal peak"] = f"no data sheet is known for {name}"
    else:
        findings.peaks["nominal"] = nominal


def nominal_peak(name: str) -> float | None:
    """Operations a second by the maker's data sheet; None for a device that is not known."""
    words = f" {name} ".replace("-", " ")
    known = [each for each in NOMINAL if f" {each} " in words]
    return NOMINAL[max(known, key=len)] if known else None


def _measure(findings: Findings, device: Device, size: int, dtype: torch.dtype) -> None:
    left = torch.randn(size, size, device=str(device)).to(dtype)
    right = torch.randn(size, size, device=str(device)).to(dtype)

    def run() -> None:
        for _ in range(_REPEATS):
            torch.matmul(left, right)
        if device.kind == "cuda":
            torch.cuda.synchronize(device.index)

    findings.peaks[str(dtype).removeprefix("torch.")] = _REPEATS * 2 * size**3 / time_runs(run, runs=10)


_REPEATS = 4
"""Matmuls between two looks at the clock."""
