"""The tables of the comparison of servers, as Markdown. Measures nothing."""

from turnscore_bench.harness.page import number, table
from turnscore_bench.servers.results import BARE, Cell, Results


def tables(results: Results, plot: str) -> str:
    """Everything measured, as Markdown; `plot` is the plot's address, seen from the page."""
    rounds = f"{results.conditions.get('caption', '')} Medians of {results.rounds()} rounds."
    parts = [rounds.strip(), "### Ratios", ratios(results), f"![CPU and throughput]({plot})"]
    for mix in results.mixes():
        parts += [f"### {results.conditions.get('mixes', {}).get(mix, mix)}", _mix_table(results, mix)]
    parts += ["### What could not be run", _not_run(results)]
    return "\n\n".join(part for part in parts if part)


def ratios(results: Results) -> str:
    """Served over bare, throughput over each other server, latency above bare: every mix and number of clients."""
    lines = [
        [mix, str(clients), results.labels.get(key, key), *_ratio_cells(results, key, mix, clients)]
        for mix in results.mixes()
        for clients in results.clients()
        for key in results.labels
        if key.startswith("turnscore")
    ]
    others = [key for key in results.labels if not key.startswith("turnscore")]
    head = ["lengths", "clients", "", "CPU, served over bare", "p50 above bare, ms"]
    head += [f"turns/s over {results.labels[key]}" for key in others]
    return table(head, [line for line in lines if any(each not in ("", "-") for each in line[3:])], texts=3)


def _ratio_cells(results: Results, key: str, mix: str, clients: int) -> list[str]:
    above = results.latency_above_bare(key, mix) if clients == 1 and key != "turnscore-16" else None
    others = [other for other in results.labels if not other.startswith("turnscore")]
    throughputs = [results.throughput_over(key, other, mix, clients) for other in others]
    over_bare = results.served_over_bare(key, mix, clients)
    return [number(over_bare, 2), number(above, 1), *(number(each, 1) for each in throughputs)]


def _mix_table(results: Results, mix: str) -> str:
    head = ["", "clients", "CPU s / 1,000 turns", "over bare", "turns/s", "p50 ms", "p99 ms"]
    head += ["client's share of CPU", "refused", "failed"]
    bare = results.cell(BARE, mix)
    rows = []
    if bare:
        rows.append(["bare runtime, ideal batches", "", *_cell_cells(bare, bare)[:3], *["-"] * 5])
    for clients in results.clients():
        for key, label in results.labels.items():
            cell = results.cell(key, mix, clients)
            if cell:
                rows.append([label, str(clients), *_cell_cells(cell, bare)])
    return table(head, rows, texts=1)


def _cell_cells(cell: Cell, bare: Cell | None) -> list[str]:
    return [
        number(cell.cpu_ms, 2),
        number(cell.cpu_ms / bare.cpu_ms if bare else None, 2),
        number(cell.turns_per_second, 0),
        number(cell.p50_ms, 1),
        number(cell.p99_ms, 1),
        f"{100 * cell.client_share:.1f} %",
        number(cell.refused, 0),
        number(cell.failed, 0),
    ]


def _not_run(results: Results) -> str:
    if not results.not_run:
        return "Everything was run."
    reasons = ((what, " ".join(why.split())[-300:].replace("`", "'")) for what, why in results.not_run.items())
    return "\n".join(f"- {what}: `{why}`" for what, why in reasons)
