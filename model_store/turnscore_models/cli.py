"""`turnscore-models`: lists, shows, checks, imports and exports bundles. Prints; decides nothing itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnscore_models import store
from turnscore_models.bundle import read_manifest
from turnscore_models.errors import BundleError
from turnscore_models.starter import starter_bundles
from turnscore_models.version_option import add_version

app = typer.Typer(help="Bundles: one version of one scorer each.", no_args_is_help=True, add_completion=False)
add_version(app)

Reference = Annotated[
    str,
    typer.Argument(help="`name`, `name:version`, `name:latest`, or the path of a bundle folder (with a /)."),
]


@app.command("list")
def list_() -> None:
    """Lists the stored bundles and the starter bundles; a broken one with the reason."""
    table = Table("bundle", "kind", "graphs", "where")
    with _refusals():
        for known in store.list_bundles():
            table.add_row(*_row(known.reference, known.folder), "store")
    for folder in starter_bundles():
        table.add_row(*_row(folder.name, folder), "starter")
    Console().print(table)


@app.command()
def show(reference: Reference) -> None:
    """Prints a bundle's manifest as JSON."""
    with _refusals():
        typer.echo(store.resolve(reference).manifest.model_dump_json(indent=2))


@app.command()
def verify(reference: Reference) -> None:
    """Checks every file of a bundle; exit code 1 and a sentence if one is wrong."""
    with _refusals():
        bundle = store.resolve(reference)
        bundle.calibration()
        bundle.self_test()
    typer.echo(
        f"{bundle.manifest.reference}: {len(bundle.manifest.files)} files as the manifest says, in {bundle.folder}"
    )


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="A bundle folder, or an archive made by `export`.")],
) -> None:
    """Puts a bundle into the model store."""
    with _refusals():
        bundle = store.import_bundle(source)
    typer.echo(f"stored {bundle.manifest.reference}")


@app.command()
def export(
    reference: Reference,
    target: Annotated[Path, typer.Argument(help="The .tar.gz to write; it must not exist.")],
) -> None:
    """Writes a bundle as one archive."""
    with _refusals():
        bundle = store.resolve(reference)
        try:
            store.export_bundle(bundle, target)
        except OSError as error:
            raise BundleError(f"{target} cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {target}")


def _row(reference: str, folder: Path) -> tuple[str, str, str]:
    """A bundle's row; a broken one's says why. Files are not checked here."""
    try:
        manifest = read_manifest(folder)
    except BundleError as error:
        return reference, "broken", escape(str(error))
    return manifest.reference, manifest.kind, ", ".join(manifest.graphs)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except BundleError as error:
        typer.secho(f"refused: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None
