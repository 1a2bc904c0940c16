"""The report on shadows: what another version would change, as a table and as an HTML page."""

from collections.abc import Iterable, Sequence

from rich.table import Table as ScreenTable

from turnscore_assessment.drift.shadow_values import FAR, ShadowValues
from turnscore_assessment.report.html_page import Page, Section, Table, write_page

_HEADER = ("", "figure")


def make_shadow_table(found: Iterable[ShadowValues]) -> ScreenTable:
    """A row for each figure, a column for each shadow."""
    each_rows = [(_name(each), _rows(each)) for each in found]
    table = ScreenTable("", *(name for name, _ in each_rows))
    for row in zip(*(rows for _, rows in each_rows), strict=True):
        table.add_row(row[0][0], *(figure for _, figure in row))
    return table


def make_shadow_page(found: Sequence[ShadowValues], command: str, date: str) -> str:
    """The table and every pair of labels, as one HTML file."""
    summary = [f"{_name(each)}: {each.compared:,.0f} turns compared." for each in found]
    sections = [
        Section(
            heading=_name(each),
            tables=[Table("What would change", _HEADER, _rows(each)), Table("Labels", _LABELS, _label_rows(each))],
        )
        for each in found
    ]
    return write_page(Page(title="Shadows", summary=summary, sections=sections, command=command, date=date))


_LABELS = ("served", "shadow", "turns")


def _name(values: ShadowValues) -> str:
    return f"{values.model} beside {values.served}"


def _rows(values: ShadowValues) -> list[tuple[str, str]]:
    turns, labelled = values.compared, values.labelled
    flips = "-"
    if labelled >= 1:
        low, high = values.flip_interval()
        flips = f"{values.flipped() / labelled:.1%} ({low:.1%} to {high:.1%})"
    correlation = "fewer than 30 turns" if values.correlation is None else f"{values.correlation:.3f}"
    return [
        ("turns compared", f"{turns:,.0f}"),
        ("turns dropped for want of an idle moment", f"{values.dropped:,.0f}"),
        ("turns failed", f"{values.turns.get('failed', 0.0):,.0f}"),
        ("mean percentile, the shadow's less the served version's", f"{values.mean_shift:+.2f}"),
        (f"turns whose percentiles differ by more than {FAR}", f"{values.far_share:.1%}"),
        ("rank correlation, latest turns", correlation),
        ("labels that flip, with Wilson's interval", flips),
        *((f"become {label}", f"{values.flipped(label):,.0f}") for label in ("low", "fair", "good")),
        ("CPU per compared turn", f"{1000 * values.cpu_seconds / turns:.1f} ms"),
    ]


def _label_rows(values: ShadowValues) -> list[tuple[str, str, str]]:
    return [(was, becomes, f"{count:,.0f}") for (was, becomes), count in sorted(values.labels.items()) if count >= 1]
