"""`text` and `degrade`: the readability of replies, and dialogues that are worse on purpose."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from turnscore_assessment.command_line import SeedOption, refuse_input, reported_errors
from turnscore_assessment.files import to_csv, write_rows, write_text
from turnscore_assessment.rendering import Page, Section, Table, print_page

if TYPE_CHECKING:
    from turnscore_assessment.readability.text_scores import DialogueReadability


def run_readability(
    dialogues: Annotated[
        Path, Argument(exists=True, dir_okay=False, help="JSON lines with `turns`, or ratings; .gz is unpacked.")
    ],
    output: Annotated[Path, Option(dir_okay=False, help="CSV to write, a line per dialogue.")],
    encoder: Annotated[
        str | None, Option(help="A bundle of kind encoder: a folder (with a /) or name. Without it no coherence.")
    ] = None,
    context_turns: Annotated[int, Option(min=1, max=50, help="Turns of context to compare a response with.")] = 1,
    penalty: Annotated[
        Literal["published", "released"], Option(help="`released`: inverted, as a published script has it.")
    ] = "published",
    dull: Annotated[Path | None, Option(exists=True, dir_okay=False, help="Dull patterns, a line each.")] = None,
    function_words: Annotated[
        Path | None, Option(exists=True, dir_okay=False, help="Words that say nothing, a line each.")
    ] = None,
) -> None:
    """Measure how easy replies read (Flesch), and their distance from the context, times a penalty for dull ones."""
    from turnscore_assessment.data.dialogues import read_conversations
    from turnscore_assessment.readability.text_scores import TextSettings, read_patterns, score_texts
    from turnscore_assessment.references.vector_metrics import BundleEncoder

    with reported_errors():
        settings = TextSettings(
            patterns=read_patterns(dull, function_words),
            encoder=BundleEncoder(encoder) if encoder else None,
            context_turns=context_turns,
            form=penalty,
        )
        found = list(score_texts(list(read_conversations(dialogues)), settings))
        if not found:
            raise typer.BadParameter("no system turn has a text", param_hint="dialogues")
    _write_texts(output, found)
    print_page(build_readability_page(found))
    typer.echo(f"wrote {output}: {len(found)} dialogues")


def _write_texts(output: Path, found: Sequence["DialogueReadability"]) -> None:
    head = ["line", "system", "words", *found[0].columns]
    rows = [
        [each.line, each.system, each.readability.words]
        + ["" if value is None else float(f"{value:.6g}") for value in each.columns.values()]
        for each in found
    ]
    write_text(output, to_csv(head, rows))


def build_readability_page(found: Sequence["DialogueReadability"]) -> Page:
    """A row per system: the means over its dialogues, and how many turns are too short for a reliable reading ease."""
    names = list(found[0].columns)
    rows = []
    for system in sorted({each.system for each in found}):
        own = [each for each in found if each.system == system]
        known = {name: [value for each in own if (value := each.columns[name]) is not None] for name in names}
        unreliable = sum(not turn.readability.is_reliable for each in own for turn in each.turns)
        turns = sum(len(each.turns) for each in own)
        means = [fmean(values) if values else None for values in known.values()]
        rows.append([system or "-", len(own), *means, f"{unreliable} of {turns}"])
    table = Table("", ["system", "dialogues", *names, "under 10 words"], rows)
    return Page(title="Readability", sections=[Section("Systems", tables=[table])])


DialogueFile = Annotated[Path, Argument(exists=True, dir_okay=False, help="JSON lines with `turns`; .gz is unpacked.")]


def run_distort(
    dialogues: DialogueFile,
    output: Annotated[Path, Option(dir_okay=False, help="File to write; gzipped if it ends in .gz.")],
    corpus: Annotated[
        Path | None, Option(exists=True, dir_okay=False, help="File of the replies; default: the same file.")
    ] = None,
    count: Annotated[int | None, Option(min=1, help="Number of dialogues, from the beginning of the file.")] = None,
    seed: SeedOption = 0,
) -> None:
    """Give recorded dialogues random, distorted replies that ignore the user, as the published quality control does."""
    from turnscore_assessment.distortion import distort_dialogues, read_corpus

    source = corpus or dialogues
    refuse_input(output, [dialogues, source], "--output")
    with reported_errors():
        replies = read_corpus(source)
        found = distort_dialogues(dialogues, replies, seed, source.samefile(dialogues))
        rows = list(islice(found, count))
    write_rows(output, rows)
    typer.echo(f"wrote {output}: {len(rows)} degraded dialogues, replies from {len(replies.replies)}")
