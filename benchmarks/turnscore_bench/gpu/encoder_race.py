"""The encoder's rows per second: the bare runtime for every batch and length, torch eager and compiled beside it."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from turnscore_core.inference.devices import Device
from turnscore_exporters.engagement.model import CONTRACT
from turnscore_exporters.graphs.export import export_fp32
from turnscore_exporters.graphs.fp16 import convert_fp16

from turnscore_bench.gpu.bare import encoder_feeds, start_graph, time_runs
from turnscore_bench.gpu.findings import Findings, RowSpeed
from turnscore_bench.gpu.shapes import Scale, Shape
from turnscore_bench.gpu.stand_ins import build_encoder
from turnscore_bench.gpu.ways import COMPILED, EAGER, RUNTIME


def race_encoder(scale: Scale, device: Device, folder: Path, findings: Findings, *, with_compile: bool) -> None:
    """Exports the encoder and measures everybody."""
    findings.attempt("bare runtime of the encoder", lambda: _run_bare(scale, device, folder, findings))
    findings.attempt("torch eager, encoder", lambda: _run_torch(scale, device, findings, EAGER))
    if with_compile:
        findings.attempt("torch.compile, encoder", lambda: _run_torch(scale, device, findings, COMPILED))
    else:
        findings.not_run["torch.compile, encoder"] = "left out by --no-compile"


def export_encoder(shape: Shape, folder: Path) -> tuple[Path, float]:
    """The fp16 graph and the seconds that it took."""
    started_at = time.perf_counter()
    fp32, fp16 = folder / f"{shape.name}-fp32.onnx", folder / f"{shape.name}-fp16.onnx"
    export_fp32(build_encoder(shape), CONTRACT, fp32)
    convert_fp16(fp32, fp16)
    fp32.unlink()
    return fp16, time.perf_counter() - started_at


def _run_bare(scale: Scale, device: Device, folder: Path, findings: Findings) -> None:
    shape = scale.encoder
    graph, export_seconds = export_encoder(shape, folder)
    backend, start = start_graph(
        shape.name, graph, export_seconds, device, lambda _: encoder_feeds(16, 32, shape.vocabulary)
    )
    findings.starts.append(start)
    for tokens in scale.lengths:
        for rows in scale.batches:
            feeds = encoder_feeds(rows, tokens, shape.vocabulary)
            seconds = time_runs(lambda feeds=feeds: backend.run(feeds), scale.runs)  # type: ignore[misc]
            findings.rows.append(_speed(shape, RUNTIME, rows, tokens, seconds))


def _run_torch(scale: Scale, device: Device, findings: Findings, way: str) -> None:
    """The compiled model is measured for each length at the largest batch alone: every shape is compiled anew."""
    shape, place = scale.encoder, str(device)
    model = build_encoder(shape, attention="sdpa").to(place)
    model.encoder.half()
    run = torch.compile(model, dynamic=False) if way == COMPILED else model
    batches = scale.batches[-1:] if way == COMPILED else scale.batches
    with torch.inference_mode():
        for tokens in scale.lengths:
            for rows in batches:
                feeds = encoder_feeds(rows, tokens, shape.vocabulary)
                seconds = time_runs(lambda feeds=feeds: _run_model(run, feeds, place), scale.runs)  # type: ignore[misc]
                findings.rows.append(_speed(shape, way, rows, tokens, seconds))


def _run_model(model: Callable[..., torch.Tensor], feeds: Mapping[str, object], place: str) -> torch.Tensor:
    return model(**{name: torch.as_tensor(values).to(place) for name, values in feeds.items()}).cpu()


def _speed(shape: Shape, way: str, rows: int, tokens: int, seconds: float) -> RowSpeed:
    a_second = rows / seconds
    return RowSpeed(
        model=shape.name,
        way=way,
        rows=rows,
        tokens=tokens,
        batch_ms=1000 * seconds,
        rows_per_second=a_second,
        operations_per_second=a_second * shape.row_operations(tokens),
    )
