"""The tables: everything that was found, as Markdown. Measures nothing, judges nothing."""

from turnscore_bench.gpu.findings import FedSpeed, Findings, RowSpeed
from turnscore_bench.gpu.verdict import Aim, judge
from turnscore_bench.gpu.ways import PACKED, PUBLISHED
from turnscore_bench.harness.page import table

_MET = {True: "yes", False: "NO", None: "-"}


def tables(findings: Findings) -> str:
    """The whole report; what could not be run stands in it with the reason."""
    parts = [
        str(findings.conditions.get("caption", "")),
        _section("Aims", _aims(judge(findings))),
        _section("Served", _served(findings)),
        _section("FED, one turn with 100 context tokens", _fed(findings)),
        _section("Encoder, rows", _rows(findings)),
        _section("Start and memory", _starts(findings)),
        _section("Peak", _peaks(findings)),
        _section("Not run", _not_run(findings)),
    ]
    return "\n\n".join(part for part in parts if part)


def _section(title: str, text: str) -> str:
    return f"#### {title}\n\n{text}"


def _aims(aims: list[Aim]) -> str:
    return table(["aim", "found", "met"], [[aim.text, aim.found, _MET[aim.is_met]] for aim in aims], texts=3)


def _served(findings: Findings) -> str:
    head = ["model", "load", "workers", "clients", "turns per request", "turns/s", "p50 ms", "p95 ms", "p99 ms"]
    head += ["over bare", "refused", "failed"]
    lines = [
        [
            *(each.model, each.load, str(each.workers), str(each.clients or "-"), str(each.turns_per_request)),
            *(f"{each.turns_per_second:,.0f}", f"{each.p50_ms:.1f}", f"{each.p95_ms:.1f}", f"{each.p99_ms:.1f}"),
            *(_number(each.over_bare, 2), str(each.refused), str(each.failed)),
        ]
        for each in findings.served
    ]
    return table(head, lines, texts=2)


def _fed(findings: Findings) -> str:
    head = ["model", "qualities", "way", "passes", "tokens", "p50 ms", "p99 ms", "times the published way", "of peak"]
    return table(head, [_fed_line(each, findings) for each in findings.fed], texts=3)


def _fed_line(each: FedSpeed, findings: Findings) -> list[str]:
    alike = {(other.model, other.qualities, other.way): other.p50_ms for other in findings.fed}
    published = alike.get((each.model, each.qualities, PUBLISHED))
    times = _number(published / each.p50_ms if published else None, 1)
    return [
        *(each.model, str(each.qualities), each.way, str(each.passes), f"{each.tokens:,}"),
        *(f"{each.p50_ms:.2f}", f"{each.p99_ms:.2f}", times, _share(each.operations_per_second, findings)),
    ]


def _rows(findings: Findings) -> str:
    head = ["model", "way", "tokens", "rows per batch", "ms", "rows/s", "of peak"]
    return table(head, [_row_line(each, findings) for each in findings.rows], texts=2)


def _row_line(each: RowSpeed, findings: Findings) -> list[str]:
    return [
        *(each.model, each.way, str(each.tokens), str(each.rows)),
        *(f"{each.batch_ms:.2f}", f"{each.rows_per_second:,.0f}", _share(each.operations_per_second, findings)),
    ]


def _starts(findings: Findings) -> str:
    head = ["model", "what", "graph MB", "export s", "until ready s", "first run s", "device memory MB"]
    lines = [
        [
            *(each.model, PACKED.partition(", ")[2], _megabytes(each.graph_bytes), f"{each.export_seconds:.1f}"),
            *(f"{each.open_seconds:.2f}", f"{each.first_run_seconds:.2f}", _megabytes(each.device_bytes)),
        ]
        for each in findings.starts
    ]
    lines += [
        [
            *(each.model, f"the service, {each.workers} workers", "-", "-", f"{each.ready_seconds:.1f}", "-"),
            _megabytes(each.device_bytes),
        ]
        for each in findings.service_starts
    ]
    return table(head, lines, texts=2)


def _peaks(findings: Findings) -> str:
    lines = [[name, f"{each / 1e12:,.1f}"] for name, each in findings.peaks.items()]
    return table(["matmul", "TFLOP/s"], lines, texts=1) + "\n\n*Of peak* is a share of the measured fp16 matmul."


def _not_run(findings: Findings) -> str:
    if not findings.not_run:
        return "Everything was run."
    return "\n".join(f"- {what}: `{why.replace('`', chr(39))}`" for what, why in findings.not_run.items())


def _share(operations_per_second: float | None, findings: Findings) -> str:
    peak = findings.peaks.get("float16")
    return "-" if operations_per_second is None or not peak else f"{100 * operations_per_second / peak:.1f} %"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:,.1f}"
