"""`turnscore models`: lists, shows, checks, imports, exports and fetches bundles, has them served. Decides nothing."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from turnscore_models import store
from turnscore_models.admin import FOLDER_VARIABLE, AdminOrder, ask_workers, describe
from turnscore_models.bundle import read_manifest, starter_bundles
from turnscore_models.manifest import BundleError
from turnscore_models.store import fetch_archive


class _ModelCommands(TyperGroup):
    """Commands that a BundleError ends, with a sentence and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BundleError as error:
            typer.secho(f"refused: {error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_ModelCommands, help="Manage bundles: versions of scorers.", no_args_is_help=True, add_completion=False
)

Reference = Annotated[
    str, typer.Argument(help="`name`, `name:version`, `name:latest`, or the path of a bundle folder (with a /).")
]


@app.command("list")
def list_() -> None:
    """List the stored bundles and the starter bundles; a broken one with the reason."""
    console = Console()
    look: dict[str, Any] = {} if console.is_terminal else {"box": None, "pad_edge": False}
    table = Table("bundle", "kind", "graphs", "where", **look)
    for known in store.list_bundles():
        table.add_row(*_row(known.reference, known.folder), "store")
    for folder in starter_bundles():
        table.add_row(*_row(folder.name, folder), "starter")
    console.print(table)


@app.command()
def show(reference: Reference) -> None:
    """Print a bundle's manifest as JSON."""
    typer.echo(store.resolve(reference).manifest.model_dump_json(indent=2))


@app.command()
def verify(reference: Reference) -> None:
    """Check every file of a bundle; exit code 1 and a sentence if one is wrong."""
    bundle = store.resolve(reference)
    bundle.calibration()
    bundle.self_test()
    typer.echo(
        f"{bundle.manifest.reference}: {len(bundle.manifest.files)} files as the manifest says, in {bundle.folder}"
    )


@app.command("import")
def import_(source: Annotated[Path, typer.Argument(help="A bundle folder, or an archive made by `export`.")]) -> None:
    """Put a bundle into the model store."""
    bundle = store.import_bundle(source)
    typer.echo(f"stored {bundle.manifest.reference}")


@app.command()
def export(
    reference: Reference, target: Annotated[Path, typer.Argument(help="The .tar.gz to write; it must not exist.")]
) -> None:
    """Write a bundle as one archive."""
    bundle = store.resolve(reference)
    try:
        store.export_bundle(bundle, target)
    except OSError as error:
        raise BundleError(f"{target} cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {target}")


@app.command()
def fetch(
    url: Annotated[str, typer.Argument(help="A .tar.gz of bundle folders, by http or https.")],
    sha256: Annotated[str, typer.Option(help="The archive's SHA-256, in hexadecimal.")],
    folder: Annotated[Path, typer.Option(help="An existing folder to unpack into.", exists=True, file_okay=False)],
) -> None:
    """Fetch bundles, signed for a bucket where AWS_ACCESS_KEY_ID is set; check the archive before it is unpacked."""
    fetch_archive(url, sha256, folder)
    typer.echo(f"unpacked into {folder}: {', '.join(sorted(each.name for each in folder.iterdir()))}")


AdminFolder = Annotated[
    Path,
    typer.Option(
        envvar=FOLDER_VARIABLE, help="The folder of the service's admin sockets.", exists=True, file_okay=False
    ),
]


@app.command()
def serve(reference: Reference, folder: AdminFolder) -> None:
    """Switch a running service to another version of a bundle.

    Each worker loads and checks it while it serves the other one, and switches between two requests. Exit code 1, and
    nothing is changed, where a worker refuses it.
    """
    if "/" in reference:
        reference = str(Path(reference).resolve())  # the service may have been started elsewhere
    _ask(folder, AdminOrder(action="serve", reference=reference))


@app.command()
def reload(folder: AdminFolder) -> None:
    """Reload the models named in the service's settings, as SIGHUP does, and print what was done."""
    _ask(folder, AdminOrder(action="reload"))


@app.command()
def serving(folder: AdminFolder) -> None:
    """Print what each worker of a running service serves."""
    _ask(folder, AdminOrder(action="status"))


def _ask(folder: Path, order: AdminOrder) -> None:
    """Prints a line for each worker; ends with 1 after a refusal."""
    for report in ask_workers(folder, order):
        is_refused = report.outcome == "refused"
        typer.secho(describe(report), err=is_refused, fg=typer.colors.RED if is_refused else None)
        if is_refused:
            raise typer.Exit(1)


def _row(reference: str, folder: Path) -> tuple[str, str, str]:
    """A bundle's row; a broken one's says why. Files are not checked here."""
    try:
        manifest = read_manifest(folder)
    except BundleError as error:
        return reference, "broken", escape(str(error))
    return manifest.reference, manifest.kind, ", ".join(manifest.graphs)
