"""`turnscore data`: public sets in the form that our commands read. Downloads nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.command_line import refuse_input, reported_errors
from turnscore_assessment.converters.readers import SETS, Record, compare_counts, find_files
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import write_rows
from turnscore_assessment.sample_data import write_sample

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def data() -> None:
    """Public dialogue sets as our commands read them; docs/data.md says where each comes from."""


@app.command()
def convert(
    name: Annotated[str, typer.Argument(help=f"The set: {', '.join(SETS)}.")],
    source: Annotated[Path, typer.Argument(exists=True, help="The original file, or a folder that holds the files.")],
    output: Annotated[Path, typer.Argument(dir_okay=False, help="JSON lines; gzipped if it ends in .gz.")],
    whole: Annotated[bool, typer.Option("--whole", help="Fail unless the counts are those of the whole set.")] = False,
) -> None:
    """Write a set's original files in our form, and compare the counts with a correct reading's."""
    if name not in SETS:
        raise typer.BadParameter(f"{name!r} must be one of {', '.join(SETS)}", param_hint="NAME")
    described = SETS[name]
    with reported_errors():
        files = find_files(described, source)
        refuse_input(output, files, "OUTPUT")
        rows = list(_read_checked(described.read(files), source))
        turns = sum(len(row.get("turns", ())) for row in rows)
        verdict = compare_counts(described, len(rows), turns)
        if whole and "whole set has" in verdict:
            raise BadFileError(source, 0, f"has {len(rows):,} rows and {turns:,} turns; {verdict}")
        write_rows(output, rows)
    read = f"{len(files)} {'file' if len(files) == 1 else 'files'}"
    typer.echo(f"wrote {output}: {len(rows):,} rows, {turns:,} turns of {read}. {verdict}".rstrip(" ."))


@app.command()
def sample(
    output: Annotated[Path, typer.Argument(file_okay=False, help="Folder to fill; empty or missing.")],
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Write a made-up sample in place of every public set, to try each command with."""
    with reported_errors():
        written = write_sample(output, seed)
    typer.echo(f"wrote {len(written)} files to {output}; nothing that is measured on them means anything")


def _read_checked(rows: Iterator[Record], source: Path) -> Iterator[Record]:
    """The rows; a field missing deep inside a record becomes an error that names it."""
    try:
        yield from rows
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadFileError(source, 0, f"is not in its published form ({type(error).__name__}: {error})") from error
