"""The report on an output: the scores' spread, drift, the worst and the best."""

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet
from turnscore_assessment.drift.report import DriftFinding, bin_name, find_drift
from turnscore_assessment.drift.sources import BINS, LiveValues
from turnscore_assessment.rendering import Page, Section, Table, draw_histogram

from turnscore_corpus.outputs.folder import BlockManifest, Described, OutputFolder
from turnscore_corpus.outputs.stores import BadOutputError

NAMED = 10  # worst and best dialogues that the report names
MOST_GROUPS = 400  # Most systems, or days; the rest are counted as one. More than a year of days.
OTHERS = "(others)"
FOREIGN = "not_in_language"
KINDS = ("system", "day")
WHOLE = ("", "")

Key = tuple[str, str]  # what a tally is about: the whole output, a system, or a day
Named = tuple[float, str]


@dataclass(kw_only=True)
class Tally:
    """The counted turns of one scorer."""

    counts: LiveValues
    values: float = 0.0
    percentiles: float = 0.0

    @property
    def mean(self) -> float:
        return self.values / max(self.counts.turns, 1)

    @property
    def mean_percentile(self) -> float | None:
        """Over the turns that have a percentile."""
        ranked = sum(self.counts.bins)
        return self.percentiles / ranked if ranked else None


@dataclass(kw_only=True)
class Corpus:
    """Everything that a report needs."""

    job: Described
    blocks: int
    seconds: float
    rows: int = 0
    dialogues: int = 0
    turns: int = 0
    computed: int = 0
    # By code and reason, with numbers left out of the reason.
    set_aside: Counter[tuple[str, str]] = field(default_factory=Counter)
    tallies: dict[str, dict[Key, Tally]] = field(default_factory=dict)
    worst: dict[str, list[Named]] = field(default_factory=dict)
    best: dict[str, list[Named]] = field(default_factory=dict)

    @property
    def scorers(self) -> list[str]:
        return list(self.job["scorers"])

    def groups(self, scorer: str, kind: str) -> dict[str, Tally]:
        """The tallies by system, or by day, in order of their names."""
        found = self.tallies[scorer]
        return {name: each for (of, name), each in sorted(found.items()) if of == kind}


def read_corpus(place: str) -> Corpus:
    """Counts what is committed. Raises BadOutputError where the folder is no output, or a file of it is damaged."""
    folder = OutputFolder.opened(place)
    job = folder.read_job()
    assert job is not None
    manifests = folder.committed()
    corpus = Corpus(job=job, blocks=len(manifests), seconds=sum(each.seconds for each in manifests.values()))
    for scorer in corpus.scorers:
        corpus.tallies[scorer] = {WHOLE: _empty(corpus, scorer)}
        corpus.worst[scorer], corpus.best[scorer] = [], []
    for manifest in manifests.values():
        _count_block(corpus, folder, manifest)
    for listed in (*corpus.worst.values(), *corpus.best.values()):
        listed.sort(reverse=True)
    return corpus


def _count_block(corpus: Corpus, folder: OutputFolder, manifest: BlockManifest) -> None:
    corpus.rows += manifest.rows
    corpus.dialogues += manifest.dialogues
    corpus.turns += manifest.turns
    corpus.computed += manifest.turns_computed
    for name, table in _tables(folder, manifest):
        if name == "set_aside":
            reasons = zip(table["code"].to_pylist(), table["reason"].to_pylist(), strict=True)
            corpus.set_aside.update((code, re.sub(r"\d+", "N", reason)) for code, reason in reasons)
            continue
        keys = {kind: _encode(corpus, table, kind) for kind in KINDS if corpus.job["columns"].get(kind)}
        for scorer in corpus.scorers:
            count = _count_turns if name == "turns" else _count_dialogues
            count(corpus, scorer, table, keys)


def _tables(folder: OutputFolder, manifest: BlockManifest) -> Iterator[tuple[str, Any]]:
    for name, file in manifest.tables.items():
        content = folder.store.get(file.name)
        try:
            yield name, parquet.read_table(pa.BufferReader(content))
        except (pa.ArrowException, OSError, TypeError):
            raise BadOutputError(f"{folder.place}: {file.name} is damaged; remove it, and score again") from None


def _encode(corpus: Corpus, table: Any, kind: str) -> tuple[list[str], NDArray[np.int64]]:
    """The groups in a table, and for each row its group."""
    encoded = compute.dictionary_encode(compute.fill_null(table[kind], "(none)").combine_chunks())
    known = {name for found in corpus.tallies.values() for of, name in found if of == kind}
    names = [each if each in known or len(known) < MOST_GROUPS else OTHERS for each in encoded.dictionary.to_pylist()]
    return names, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


Keys = Mapping[str, tuple[list[str], NDArray[np.int64]]]


def _selections(corpus: Corpus, scorer: str, rows: NDArray[np.bool_], keys: Keys) -> Iterator[tuple[Tally, Any]]:
    """Every tally that some of the rows belong to, and which rows."""
    yield corpus.tallies[scorer][WHOLE], rows
    for kind, (names, indices) in keys.items():
        for place, name in enumerate(names):
            tally = corpus.tallies[scorer].setdefault((kind, name), _empty(corpus, scorer))
            yield tally, rows & (indices == place)


def _count_turns(corpus: Corpus, scorer: str, table: Any, keys: Keys) -> None:
    values, percentiles = _numbers(table, scorer, "value"), _numbers(table, scorer, "percentile")
    labels = np.array(table[f"{scorer}_label"].to_pylist(), dtype=object)
    cut = np.nan_to_num(_numbers(table, scorer, "tokens_dropped")) > 0
    foreign = np.array([bool(each) and FOREIGN in each for each in table[f"{scorer}_warnings"].to_pylist()])
    bins = np.clip(np.ceil(np.nan_to_num(percentiles) * BINS / 100) - 1, 0, BINS - 1).astype(np.int64)
    ranked = ~np.isnan(percentiles)
    for tally, chosen in _selections(corpus, scorer, ~np.isnan(values), keys):
        counts = tally.counts
        counts.turns += float(chosen.sum())
        tally.values += float(values[chosen].sum())
        tally.percentiles += float(percentiles[chosen & ranked].sum())
        found = np.bincount(bins[chosen & ranked], minlength=BINS)
        counts.bins = [before + float(more) for before, more in zip(counts.bins, found, strict=True)]
        counts.labelled += float((labels[chosen] != None).sum())  # noqa: E711 - elementwise
        counts.low += float((labels[chosen] == "low").sum())
        counts.cut += float(cut[chosen].sum())
        counts.foreign += float(foreign[chosen].sum())


def _count_dialogues(corpus: Corpus, scorer: str, table: Any, keys: Keys) -> None:
    means = _numbers(table, scorer, "percentile_mean")
    means = np.where(np.isnan(means), _numbers(table, scorer, "mean"), means)
    scored = ~np.isnan(means)
    for tally, chosen in _selections(corpus, scorer, scored, keys):
        tally.counts.dialogues += float(chosen.sum())
    names = table["dialogue"].to_pylist()
    ordered = [int(each) for each in np.argsort(means, kind="stable") if scored[each]]
    _keep(corpus.best[scorer], ((float(means[each]), names[each]) for each in ordered[-NAMED:]))
    _keep(corpus.worst[scorer], ((-float(means[each]), names[each]) for each in ordered[:NAMED]))


def _keep(listed: list[Named], found: Iterable[Named]) -> None:
    """The `NAMED` highest of all found."""
    listed[:] = heapq.nlargest(NAMED, [*listed, *found])


def _numbers(table: Any, scorer: str, name: str) -> NDArray[np.float64]:
    column = table[f"{scorer}_{name}"].cast(pa.float64())
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _empty(corpus: Corpus, scorer: str) -> Tally:
    return Tally(counts=LiveValues.empty(scorer, corpus.job["models"][scorer]["model"]))


_GROUPED = ("dialogues", "turns", "mean", "mean percentile", "low", "index", "limit", "drift")
Rows = list[tuple[str, ...]]


def build_page(corpus: Corpus, command: str) -> Page:
    """The report: tables, and charts where it becomes a page."""
    told, sections = list(_summary(corpus)), list(_sections(corpus))
    return Page(title="Scores of a corpus", summary=told, sections=sections, command=command)


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
            f"{scorer}: {whole.counts.model}",
            paragraphs=[f"{each[0].upper()}{each[1:]}." for each in finding.warnings],
            charts=[_draw(corpus, scorer)] if any(whole.counts.bins) else [],
            tables=[
                Table(f"{scorer}: all turns", ("", *_GROUPED), [("all", *_cells(whole, finding))]),
                Table(f"{scorer}: shares", ("percentile up to", "turns"), _shares(whole)),
                *(_grouped(corpus, scorer, kind) for kind in KINDS if corpus.groups(scorer, kind)),
                _ends(f"{scorer}: worst", ((name, -mean) for mean, name in corpus.worst[scorer])),
                _ends(f"{scorer}: best", ((name, mean) for mean, name in corpus.best[scorer])),
            ],
        )
    if corpus.set_aside:
        listed = corpus.set_aside.most_common(20)
        rows = [(reason, code, f"{count:,}") for (code, reason), count in listed]
        yield Section("Set aside", tables=[Table("Set aside, by reason", ("reason", "code", "rows"), rows)])


def _ends(caption: str, means: Iterable[tuple[str, float]]) -> Table:
    return Table(caption, ("dialogue", "mean"), [(name, f"{mean:.4g}") for name, mean in means])


def _draw(corpus: Corpus, scorer: str) -> Any:
    edges = [100 * place / BINS for place in range(BINS + 1)]
    systems = corpus.groups(scorer, "system")
    # series in one chart: as many colours as a reader can distinguish
    chosen = sorted(systems, key=lambda name: -systems[name].counts.turns)[:4]
    series = {name: systems[name].counts.bins for name in sorted(chosen)} if len(systems) > 1 else {}
    title = f"Percentiles of {scorer}, share of turns; the bundle's reference turns are level at {100 // BINS} %"
    return draw_histogram(title, edges, series or {"all turns": corpus.tallies[scorer][WHOLE].counts.bins})


def _grouped(corpus: Corpus, scorer: str, kind: str) -> Table:
    groups = corpus.groups(scorer, kind)
    findings = find_drift([each.counts for each in groups.values()])
    rows = [(name, *_cells(each, finding)) for (name, each), finding in zip(groups.items(), findings, strict=True)]
    return Table(f"{scorer}: by {kind}", (kind, *_GROUPED), rows)


def _cells(tally: Tally, finding: DriftFinding) -> tuple[str, ...]:
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
