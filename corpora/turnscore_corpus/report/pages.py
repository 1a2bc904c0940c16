"""The report as text for a terminal and as one HTML page. Counts nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

from turnscore_assessment.charts import draw_histogram
from turnscore_assessment.drift.findings import Finding, find_drift
from turnscore_assessment.drift.live_values import BINS
from turnscore_assessment.drift.report import bin_name
from turnscore_assessment.rendering import Page, Section, Table, write_page

from turnscore_corpus.report.tallies import KINDS, WHOLE, Corpus, Tally

_GROUPED = ("dialogues", "turns", "mean", "mean percentile", "low", "index", "limit", "drift")
_MOST_DRAWN = 4
"""Series in one chart: as many colours as a reader can distinguish."""
Rows = list[tuple[str, ...]]


def make_text(corpus: Corpus) -> str:
    """The report as tables of plain text."""
    lines = list(_summary(corpus))
    for section in _sections(corpus):
        lines += ["", section.heading]
        for paragraph in section.paragraphs:
            lines += [paragraph]
        for table in section.tables:
            lines += ["", table.caption, *_aligned([tuple(table.header), *map(tuple, table.rows)])]
    return "\n".join(lines) + "\n"


def make_page(corpus: Corpus, command: str, date: str) -> str:
    """The report with charts, as one HTML file."""
    page = Page(
        title="Scores of a corpus",
        summary=list(_summary(corpus)),
        sections=list(_sections(corpus)),
        command=command,
        date=date,
    )
    return write_page(page)


def _summary(corpus: Corpus) -> Iterator[str]:
    blocks = corpus.job["blocks"]
    yield (
        f"{corpus.turns:,} turns of {corpus.dialogues:,} dialogues in {corpus.rows:,} rows; "
        f"{sum(corpus.set_aside.values()):,} set aside."
    )
    if corpus.blocks < blocks:
        yield f"Not finished: {corpus.blocks} of {blocks} blocks are done. Repeat the command to resume."
    asked = corpus.turns * len(corpus.scorers)
    if asked:
        yield f"{corpus.computed / asked:.1%} of the scores were computed; the others are those of equal turns."
    if corpus.seconds:
        rate = corpus.turns / corpus.seconds
        yield f"{corpus.seconds / 3600:.2f} hours of one worker, {rate:,.0f} turns per second of it."


def _sections(corpus: Corpus) -> Iterator[Section]:
    for scorer in corpus.scorers:
        whole = corpus.tallies[scorer][WHOLE]
        [finding] = find_drift([whole.counts])
        yield Section(
            heading=f"{scorer}: {whole.counts.model}",
            paragraphs=[f"{each[0].upper()}{each[1:]}." for each in finding.warnings],
            charts=[_draw(corpus, scorer)] if any(whole.counts.bins) else [],
            tables=[
                Table("All turns", ("", *_GROUPED), [("all", *_cells(whole, finding))]),
                Table("Share of turns by percentile", ("up to", "share"), _shares(whole)),
                *(_grouped(corpus, scorer, kind) for kind in KINDS if corpus.groups(scorer, kind)),
                Table(
                    "Worst dialogues",
                    ("dialogue", "mean"),
                    [(name, f"{-mean:.4g}") for mean, name in corpus.worst[scorer]],
                ),
                Table(
                    "Best dialogues",
                    ("dialogue", "mean"),
                    [(name, f"{mean:.4g}") for mean, name in corpus.best[scorer]],
                ),
            ],
        )
    if corpus.set_aside:
        listed = corpus.set_aside.most_common(20)
        rows = [(reason, code, f"{count:,}") for (code, reason), count in listed]
        yield Section(heading="Set aside", tables=[Table("By reason", ("reason", "code", "rows"), rows)])


def _draw(corpus: Corpus, scorer: str) -> Any:
    edges = [100 * place / BINS for place in range(BINS + 1)]
    systems = corpus.groups(scorer, "system")
    chosen = sorted(systems, key=lambda name: -systems[name].counts.turns)[:_MOST_DRAWN]
    series = {name: systems[name].counts.bins for name in sorted(chosen)} if len(systems) > 1 else {}
    title = f"Percentiles of {scorer}, share of turns; the bundle's reference turns are level at {100 // BINS} %"
    return draw_histogram(title, edges, series or {"all turns": corpus.tallies[scorer][WHOLE].counts.bins})


def _grouped(corpus: Corpus, scorer: str, kind: str) -> Table:
    groups = corpus.groups(scorer, kind)
    findings = find_drift([each.counts for each in groups.values()])
    rows = [(name, *_cells(each, finding)) for (name, each), finding in zip(groups.items(), findings, strict=True)]
    return Table(f"By {kind}", (kind, *_GROUPED), rows)


def _cells(tally: Tally, finding: Finding) -> tuple[str, ...]:
    counts, percentile = tally.counts, tally.mean_percentile
    found = finding.comparisons[0] if finding.comparisons else None
    return (
        f"{counts.dialogues:,.0f}",
        f"{counts.turns:,.0f}",
        f"{tally.mean:.4f}",
        "-" if percentile is None else f"{percentile:.1f}",
        f"{counts.low / counts.labelled:.1%}" if counts.labelled else "-",
        "-" if found is None else f"{found.index:.4f}",
        "-" if found is None else f"{found.limit:.4f}",
        "-" if found is None else str(found.verdict),
    )


def _shares(tally: Tally) -> Rows:
    total = sum(tally.counts.bins)
    return [(bin_name(place), f"{each / total:.1%}" if total else "-") for place, each in enumerate(tally.counts.bins)]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) if place == 0 else cell.rjust(width)
                         for place, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]  # fmt: skip
