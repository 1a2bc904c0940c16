"""`turnscore-assess degrade`: dialogues that are worse on purpose, for a study's quality control."""

import json
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.commands.options import SeedOption
from turnscore_assessment.files import write_packed
from turnscore_assessment.reported_errors import reported_errors

DialogueFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="JSON lines with `turns`; .gz is unpacked.")
]


def run(
    dialogues: DialogueFile,
    output: Annotated[Path, typer.Option(dir_okay=False, help="File to write; gzipped if it ends in .gz.")],
    corpus: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="File of the replies; default: the same file.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Number of dialogues, from the beginning of the file.")
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Give recorded dialogues random, distorted replies that ignore the user, as the published quality control does."""
    from turnscore_assessment.degradation.degraded_dialogues import degrade_dialogues
    from turnscore_assessment.degradation.reply_corpus import read_corpus

    source = corpus or dialogues
    if output.exists() and (output.samefile(dialogues) or output.samefile(source)):
        raise typer.BadParameter("must differ from the input: it would be overwritten", param_hint="--output")
    with reported_errors():
        replies = read_corpus(source)
        found = degrade_dialogues(dialogues, replies, seed, source.samefile(dialogues))
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in islice(found, count)]
    write_packed(output, "".join(lines))
    typer.echo(f"wrote {output}: {len(lines)} degraded dialogues, replies from {len(replies.replies)}")
