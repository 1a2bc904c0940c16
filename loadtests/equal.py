"""`make equal DATA=FILE`: scores real turns in every way a service can be asked, and prints by how much they differ.

Starts the service on this machine, twice. FILE holds dialogues, one a line: `{"turns": [{"speaker", "text"}]}`.
"""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_client import TurnScoreClient
from turnscore_load.equality import UnequalScoresError, check_bounds, compare_ways, difference_table, read_dialogues
from turnscore_load.target import NoServiceError, target

_NO_PORT = 0
"""Nothing answers there: a service is started."""
_LOG = Path("build/load/equal.log")
_TIMEOUT_SECONDS = 300.0


def main(
    data: Annotated[Path, typer.Argument(help="JSON lines of dialogues; may be gzipped.")],
    turns: Annotated[int, typer.Option(min=2, max=5000, help="System turns to score, about.")] = 500,
    bentoml: Annotated[Path, typer.Option(help="The bentoml command that starts a service.")] = Path(
        ".venv/bin/bentoml"
    ),
) -> None:
    """Prints the table. Ends with 1 where a difference is beyond its scorer's bound."""
    dialogues = read_dialogues(data, turns)
    try:
        with target(_NO_PORT, bentoml, _LOG) as first, target(_NO_PORT, bentoml, _LOG.with_suffix(".2.log")) as second:
            client = TurnScoreClient(first.url, timeout_seconds=_TIMEOUT_SECONDS)
            again = TurnScoreClient(second.url, timeout_seconds=_TIMEOUT_SECONDS)
            with client, again:
                differences = compare_ways(client, again, dialogues)
    except NoServiceError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    typer.echo(difference_table(differences))
    try:
        check_bounds(differences)
    except UnequalScoresError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
