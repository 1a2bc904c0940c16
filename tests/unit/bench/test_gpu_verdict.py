"""What the GPU benchmark says of what it found; nothing is measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from turnscore_bench.gpu.findings import FedSpeed, Findings, RowSpeed, Served, ServiceStart, Start
from turnscore_bench.gpu.peaks import nominal_peak
from turnscore_bench.gpu.shapes import FULL, Shape
from turnscore_bench.gpu.tables import tables
from turnscore_bench.gpu.verdict import judge
from turnscore_bench.gpu.ways import PACKED, PUBLISHED, PUBLISHED_FP16, RUNTIME

RATE = "50 requests/s at random, 18 qualities"
ENCODER = Served(
    model="bert-base",
    load="closed loop, 32 tokens",
    clients=128,
    turns_per_request=16,
    turn_tokens=32,
    workers=4,
    turns_per_second=12_000,
    p50_ms=9,
    p95_ms=14,
    p99_ms=20,
    refused=0,
    failed=0,
    bare_turns_per_second=13_200,
)


@pytest.fixture
def findings() -> Findings:
    return Findings(
        conditions={"caption": "Measured nowhere."},
        peaks={"float16": 600e12},
        starts=[
            Start(
                model="bert-base",
                graph_bytes=220_000_000,
                export_seconds=30.0,
                open_seconds=2.0,
                first_run_seconds=0.5,
                device_bytes=500_000_000,
            )
        ],
        rows=[
            RowSpeed(
                model="bert-base",
                way=RUNTIME,
                rows=64,
                tokens=32,
                batch_ms=2.0,
                rows_per_second=32_000,
                operations_per_second=150e12,
            )
        ],
        fed=[
            FedSpeed(
                model="dialogpt-medium", qualities=18, way=PUBLISHED, passes=73, tokens=7784, p50_ms=730.0, p99_ms=760.0
            ),
            FedSpeed(
                model="dialogpt-medium",
                qualities=18,
                way=PUBLISHED_FP16,
                passes=73,
                tokens=7784,
                p50_ms=500.0,
                p99_ms=520.0,
            ),
            FedSpeed(
                model="dialogpt-medium",
                qualities=18,
                way=PACKED,
                passes=1,
                tokens=361,
                p50_ms=10.0,
                p99_ms=11.0,
                operations_per_second=60e12,
            ),
        ],
        service_starts=[ServiceStart(model="bert-base", workers=4, ready_seconds=21.0, device_bytes=None)],
        served=[
            ENCODER,
            replace(ENCODER, turn_tokens=64, turns_per_second=6000, bare_turns_per_second=7500),
            Served(
                model="dialogpt-medium",
                load=RATE,
                clients=0,
                turns_per_request=1,
                turn_tokens=100,
                workers=1,
                turns_per_second=50,
                p50_ms=12,
                p95_ms=18,
                p99_ms=24.5,
                refused=0,
                failed=0,
            ),
        ],
        not_run={"torch.compile, encoder": "RuntimeError: no `triton`"},
    )


def met(findings: Findings) -> list[bool | None]:
    return [aim.is_met for aim in judge(findings)]


def test_every_aim_is_judged_by_its_own_figure(findings: Findings) -> None:
    assert [aim.found.split(" (")[0] for aim in judge(findings)] == [
        *("12,000", "1.10", "6,000", "1.25", "24.5 ms", "73.0", "50.0"),
    ]
    assert met(findings) == [True, True, False, False, True, True, True]


def test_single_turns_and_failing_runs_reach_no_aim(findings: Findings) -> None:
    findings.served[:2] = [replace(ENCODER, turns_per_request=1), replace(ENCODER, failed=1)]
    assert met(findings)[:4] == [None] * 4


def test_a_quick_service_that_lost_requests_misses_the_latency_aim(findings: Findings) -> None:
    findings.served[2] = replace(findings.served[2], refused=3)
    aim = judge(findings)[4]
    assert (aim.found, aim.is_met) == ("24.5 ms, 3 not answered", False)


def test_what_was_not_measured_is_neither_met_nor_missed(findings: Findings) -> None:
    assert set(met(Findings())) == {None}
    assert {aim.found for aim in judge(Findings())} == {"not measured"}


def test_figures_of_a_cpu_are_not_judged(findings: Findings) -> None:
    findings.conditions["not_judged"] = "computed on the CPU"
    assert set(met(findings)) == {None}
    assert {aim.found for aim in judge(findings)} == {"not judged: computed on the CPU"}


def test_tables_hold_every_measurement_and_what_was_not_run(findings: Findings) -> None:
    text = tables(findings)
    assert "| bert-base | closed loop, 32 tokens | 4 | 128 | 16 | 12,000 | 9.0 | 14.0 | 20.0 | 1.10 | 0 | 0 |" in text
    assert f"| dialogpt-medium | 18 | {PACKED} | 1 | 361 | 10.00 | 11.00 | 73.0 | 10.0 % |" in text
    assert f"| bert-base | {RUNTIME} | 32 | 64 | 2.00 | 32,000 | 25.0 % |" in text
    assert "| 220.0 | 30.0 | 2.00 | 0.50 | 500.0 |" in text
    assert "| bert-base | the service, 4 workers | - | - | 21.0 | - | - |" in text
    assert "- torch.compile, encoder: `RuntimeError: no 'triton'`" in text


def test_a_part_that_fails_is_kept_with_its_reason_and_the_next_one_runs(tmp_path: Path) -> None:
    findings, ran = Findings(), []

    def fail() -> None:
        raise RuntimeError("CUDA failure 2:\n out of memory")

    findings.attempt("large", fail)
    findings.attempt("small", lambda: ran.append("small"))
    assert ran == ["small"]
    findings.write(tmp_path / "results.json")
    answer = json.loads((tmp_path / "results.json").read_text())
    assert answer["not_run"] == {"large": "RuntimeError: CUDA failure 2: out of memory"}


def test_a_row_s_arithmetic_is_that_of_its_matmuls() -> None:
    shape = Shape(name="tiny", layers=1, width=2, heads=1, vocabulary=10, positions=8)
    # Query, key, value, output: 4 matmuls of 2 x 2; the MLP 2 x 8 and 8 x 2; scores and their use 3 x 3 x 2 each.
    assert shape.row_operations(3) == 2 * (3 * (4 * 4 + 16 + 16) + 2 * 3 * 3 * 2)
    assert FULL.encoder.row_operations(32) == pytest.approx(2 * 85e6 * 32, rel=0.02)


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("Made-Up 9000", None),
    ],
)
def test_the_data_sheet_is_found_by_the_device_s_name(name: str, peak: float | None) -> None:
    assert nominal_peak(name) == peak
