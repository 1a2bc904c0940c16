"""Measures the agreement of every scorer with people on every development set, into results/agreement-table.json.

.venv-dev/bin/python experiments/agreement_table.py DATA [--page build/agreement-table.md]
"""

import json
import math
import random
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from development_sets import (
    ALL,
    SLOW,
    TURNS,
    Figures,
    ScoredSet,
    SystemAgreement,
    measure_set,
    order_systems,
    read_judged_sets,
    score_sets,
    to_results,
)
from turnscore_assessment.agreement.scoring import load_bundles
from turnscore_assessment.command_line import RoundsOption, SeedOption, reported_errors
from turnscore_assessment.data.dialogues import ADVERSARIAL_FILE, ADVERSARIAL_KINDS, LabelledTurn, alternate
from turnscore_assessment.errors import AgreementError
from turnscore_assessment.figures import CONFIDENCE, Floats, draw_dialogues, find_interval
from turnscore_assessment.files import read_rows, to_json_text, write_text
from turnscore_assessment.rendering import NOTHING, Page, Section, Table, to_markdown
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scoring import score_turns
from turnscore_models.bundle import starter_bundles

FIT = 0.5  # A response counts as relevant from here on. Specified.
SCORER, PART = "quality", "relevant"
_RELEVANT, *NEGATIVES = ADVERSARIAL_KINDS


def measure_relevance(
    loaded: LoadedScorer, folder: Path, most_contexts: int, draws: tuple[int, int]
) -> list[list[object]]:
    """By split and kind of negatives, the contexts and the accuracy; nothing without data.

    Over at most so many random contexts per split, which are resampled.
    """
    if not (folder / ADVERSARIAL_FILE).exists():
        return []
    rows = [row for _, row in read_rows(folder / ADVERSARIAL_FILE)]
    found: list[list[object]] = []
    for split in sorted({row["split"] for row in rows}):
        members = [row for row in rows if row["split"] == split]
        if len(members) > most_contexts:
            members = random.Random(draws[1]).sample(members, most_contexts)
        shares = _call_relevant(loaded, members)
        drawn = draw_dialogues(len(members), *draws)
        for place, kind in enumerate(NEGATIVES, start=1):
            right = (shares[:, 0] + 1 - shares[:, place]) / 2
            accuracy = find_interval(float(right.mean()), drawn @ right / len(members))
            found.append([split, kind, len(members), accuracy])
    return found


def _call_relevant(loaded: LoadedScorer, rows: Sequence[dict[str, Any]]) -> Floats:
    """The share of each context's responses, by kind [rows, kinds], that counts as relevant."""
    asked = [
        (place, column, LabelledTurn(context=context, response=response).to_score())
        for place, row in enumerate(rows)
        for context in [alternate([text for text in row["context"] if text.strip()])]
        for column, kind in enumerate(ADVERSARIAL_KINDS)
        for response in row[kind]
        if response.strip()
    ]
    scores = score_turns(loaded, [turn for *_, turn in asked])
    calls, counts = np.zeros((2, len(rows), len(ADVERSARIAL_KINDS)))
    for (place, column, _), raw in zip(asked, scores, strict=True):
        calls[place, column] += raw.details[PART] >= FIT
        counts[place, column] += 1
    return np.asarray(calls / counts)


MARK = "†"  # Ends the name of a row that another run measured.


def read_trained(path: Path, items: Mapping[str, int]) -> tuple[str, dict[str, dict[str, float]]]:
    """A sentence that explains the mark, and by system Spearman's rho or the AUC by set.

    Of these sets alone: a set with other items has none.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, dict[str, float]] = {}
    turns: dict[str, int] = {}
    for name, rows in document["sets"].items():
        if document["items"].get(name) != items.get(name, -1):
            continue
        for system, row in rows.items():
            value = row["agreement"][0]
            found.setdefault(system, {})[name] = math.nan if value is None else float(value)
            turns[system] = max(turns.get(system, 0), row.get("n", 0))
    few = [name for name, count in turns.items() if 2 * count < max(turns.values())]
    scored_few = f" {', '.join(few)}: at most {max(turns[name] for name in few)} turns a set." if few else ""
    note = (
        f"{MARK} Trained and measured by `{document['command']}` on {document['date']}, not by this run: the same "
        f"turns, but none of dialogues that the system was trained on.{scored_few} results/baselines.json has the "
        "intervals."
    )
    return note, found


FITTED = "(fitted on)"  # Ends the name of a set that quality's value is fitted on.
RESULTS = Path(__file__).parents[1] / "results"
# The papers' other systems on the same sets, as experiments/baselines.py measured them.
TRAINED = Path(__file__).with_name("agreement_trained.json")

PUBLISHED = Path(__file__).with_name("agreement_published.json")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, kw_only=True)
class MeasuredSet:
    """A set with its figures by system and column, and by column those of the systems' order."""

    scored: ScoredSet
    groups: Mapping[str, Mapping[str, Figures]]
    people_order: Sequence[str]
    systems: Mapping[str, SystemAgreement]

    @property
    def name(self) -> str:
        return self.scored.judged.name

    @property
    def is_averaged(self) -> bool:
        judged = self.scored.judged
        return judged.unit == TURNS and not judged.is_binary and not self.name.endswith(FITTED)

    def agreement(self, name: str) -> float:
        figures = self.groups[ALL].get(name)
        return math.nan if figures is None else figures.agreement.value


@app.command()
def main(
    data: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Folder with the development sets.")],
    output: Annotated[Path, typer.Option(dir_okay=False, help="The figures, JSON.")] = RESULTS / "agreement-table.json",
    page: Annotated[Path | None, typer.Option(dir_okay=False, help="The same as a Markdown page.")] = None,
    bundles: Annotated[
        list[str] | None,
        typer.Option("--bundle", help="A bundle's folder (with a /) or name; repeatable. Default: all starters."),
    ] = None,
    turns: Annotated[int, typer.Option(min=10, help="Most turns per set.")] = 3000,
    fed_turns: Annotated[int, typer.Option(min=10, help="Most turns per set for fed, which is slow.")] = 300,
    contexts: Annotated[int, typer.Option(min=3, help="Contexts of adversarial responses per split.")] = 250,
    rounds: RoundsOption = 500,
    seed: SeedOption = 0,
) -> None:
    """Measure how every scorer, its parts, their sums, length and position agree with people's judgements."""
    with reported_errors():
        sets = read_judged_sets(data, turns, seed)
        if not sets:
            raise AgreementError(f"{data} has none of the development sets")
        scorers = load_bundles(bundles or [f"{folder}/" for folder in starter_bundles()])
        scorers = {name: each for name, each in scorers.items() if each.speaker == "system"}
        scored = score_sets(sets, scorers, fed_turns, seed, lambda done: typer.echo(done, err=True))
        draws = rounds, seed
        relevance = measure_relevance(scorers[SCORER], data, contexts, draws) if SCORER in scorers else []
        found = [
            MeasuredSet(scored=each, groups=measure_set(each, draws), people_order=order, systems=systems)
            for each in scored
            for order, systems in [order_systems(each, draws)]
        ]
    shown = Page(
        title="Agreement of every scorer with people, on the development sets",
        summary=_summarize(scorers.values(), fed_turns, rounds, seed),
        sections=[*list_sections(found), *_show_relevance(relevance), *_show_published()],
        command=shlex.join(["experiments/agreement_table.py", "DATA", *sys.argv[2:]]),
    )
    write_text(output, to_json_text(to_results(shown)))
    if page is not None:
        write_text(page, to_markdown(shown))
    typer.echo(f"wrote {output}")


def _summarize(scorers: Iterable[LoadedScorer], fed_turns: int, rounds: int, seed: int) -> list[str]:
    models = [f"{each.bundle.manifest.reference} ({each.variant}, {each.bundle.digest[:12]})" for each in scorers]
    asked = [f"{SLOW} is asked about {fed_turns} turns a set, of dialogues drawn at random."]
    return [
        f"Measured is what the service computes with the graph named: {', '.join(models)}.",
        *(asked if any(each.startswith(f"{SLOW}:") for each in models) else []),
        f"Intervals of {CONFIDENCE:.0%} from {rounds} resamples of whole dialogues (seed {seed}). Models were chosen "
        f"by these sets, and quality's value was fitted to the parts {FITTED}: only sets that nobody tuned to show "
        "what a scorer is worth elsewhere.",
    ]


def list_sections(sets: Sequence[MeasuredSet]) -> Iterator[Section]:
    """Every score on every set with its mean over those of graded turns that nothing is fitted on; then each set."""
    averaged = [each for each in sets if each.is_averaged]
    mark_note, trained = read_trained(TRAINED, {each.name: len(each.scored.judged.items) for each in sets})

    def row(name: str, agreement: Mapping[str, float]) -> list[object]:
        mean = sum(agreement.get(each.name, math.nan) for each in averaged) / len(averaged) if averaged else math.nan
        return [name, *(agreement.get(each.name, math.nan) for each in sets), mean]

    names = list(dict.fromkeys(name for each in sets for name in each.groups[ALL]))
    rows = [row(name, {each.name: each.agreement(name) for each in sets}) for name in names]
    rows += [row(f"{name} {MARK}", own) for name, own in trained.items()]
    header = ["score", *(f"{each.name}{', AUC' * each.scored.judged.is_binary}" for each in sets), "mean"]
    note = (
        "Spearman's rho, or where people said good or bad the area under the ROC curve. The mean is that of rho over "
        f"{', '.join(each.name for each in averaged)}. Sets {FITTED} stand in this table alone."
    )
    notes = [note, *([mark_note] if trained else [])]
    yield Section(heading="All sets", paragraphs=notes, tables=[Table("All sets", header, rows)])
    for each in sets:
        if not each.name.endswith(FITTED):
            yield _show_set(each)
    for each in sets:
        if each.systems:
            yield _show_systems(each)


def _show_set(measured: MeasuredSet) -> Section:
    judged = measured.scored.judged
    kind = "AUC" if judged.is_binary else "Spearman"
    rows = [
        [name, each.items, each.agreement, each.pearson, each.given_length]
        for name, each in measured.groups[ALL].items()
    ]
    tables = [Table(judged.name, ["score", "n", kind, "Pearson", "Spearman given length"], rows)]
    apart = [name for name in measured.groups if name != ALL]
    if apart:
        rows = [[name, *(measured.groups[system][name].agreement for system in apart)] for name in measured.groups[ALL]]
        tables.append(Table(f"{judged.name} by system", [f"{kind} by system", *apart], rows))
    dialogues = len({item.dialogue for item in judged.items})
    counted = f"{len(judged.items)} {judged.unit}, {dialogues} dialogues. {judged.note}".strip()
    return Section(heading=judged.name, paragraphs=[counted], tables=tables)


def _show_systems(measured: MeasuredSet) -> Section:
    rows = [
        [name, each.pearson, each.spearman, " > ".join(each.order) or NOTHING]
        for name, each in measured.systems.items()
    ]
    heading = f"The {len(measured.people_order)} systems of {measured.name}"
    note = f"Means over a system's dialogues. People's order, best first: {' > '.join(measured.people_order)}."
    table = Table(heading, ["score", "Pearson", "Spearman", "its order"], rows)
    return Section(heading=heading, paragraphs=[note], tables=[table])


def _show_relevance(rows: Sequence[Sequence[object]]) -> list[Section]:
    note = "Accuracy of quality's `relevant` at 0.5, both classes counting alike; intervals from resampled contexts."
    table = Table("adversarial_responses", ["split", "against", "contexts", "accuracy"], rows)
    return [Section(heading="adversarial_responses", paragraphs=[note], tables=[table])] if rows else []


def _show_published() -> Iterator[Section]:
    """What papers say of other systems, on these sets and on those that are held back."""
    for heading, rows in json.loads(PUBLISHED.read_text(encoding="utf-8")).items():
        header = ["set", "figure", "published", "source"]
        cells = [
            [
                f"{row['set']} ({row['note']})" if "note" in row else row["set"],
                row["figure"],
                "; ".join(f"{system} {_show_published_value(value)}" for system, value in row["systems"].items()),
                row["source"],
            ]
            for row in rows
        ]
        yield Section(heading=heading, tables=[Table(heading, header, cells)])


def _show_published_value(value: float | Sequence[float]) -> str:
    values = [value] if isinstance(value, int | float) else value
    return " / ".join(f"{each:.3f}".rstrip("0") if each else "0" for each in values)


if __name__ == "__main__":
    app()
