"""Finds the sub-commands of `turnscore` by entry points, and imports the one that is run."""

import sys
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

GROUP = "turnscore.commands"  # the entry points' group. Each names a typer app, or a function that typer can run

# The distributions that have commands, and their folders in a checkout.
FOLDERS = {
    "turnscore-client": "./clients",
    "turnscore-core": "./core",
    "turnscore": ".",
    "turnscore-corpus": "./corpora",
    "turnscore-assessment": "./assessment",
    "turnscore-exporters": "./exporters",
}

KNOWN_ENGINES = {"local": "turnscore-core", "ray": "turnscore-corpus[ray]"}

# Kept here, so that help lists everything and imports nothing.
KNOWN = {
    "score": ("turnscore-client", "Score a file of turns or dialogues: through a service, here, or on Ray."),
    "info": ("turnscore-client", "List the models that a running service has loaded."),
    "models": ("turnscore-core", "List, check, import and export bundles, and switch what a service serves."),
    "serve": ("turnscore", "Start the service configured by the TURNSCORE_* variables."),
    "doctor": ("turnscore", "Report what this machine has, and which graph of each scorer would run where."),
    "keys": ("turnscore", "Make, list, rotate and revoke API keys."),
    "cache": ("turnscore", "Remove a model's scores from the cache that processes share."),
    "corpus": ("turnscore-corpus", "Score files of dialogues into tables: here, on Ray, or through a service."),
    "agreement": ("turnscore-assessment", "Correlate scores with people's judgements of the same turns."),
    "assess": ("turnscore-assessment", "Plan and report studies with people: rating sheets, reliability, power."),
    "compare": ("turnscore-assessment", "Compare your systems, every two of them, by scores and by people's ratings."),
    "data": ("turnscore-assessment", "Convert public dialogue sets to the form that the other commands read."),
    "drift": ("turnscore-assessment", "Save baselines of a service's scores, and report drift."),
    "judge": ("turnscore-assessment", "Collect large language models' marks of turns, or import marks."),
    "references": ("turnscore-assessment", "Score responses against references: BLEU, ROUGE, METEOR and others."),
    "study": ("turnscore-assessment", "Run a study: workers talk with systems or read dialogues, and rate."),
    "train": ("turnscore-exporters", "Train the models that turnscore serves."),
    "export": ("turnscore-exporters", "Make bundles that turnscore serves."),
    "calibrate": ("turnscore-exporters", "Fit a scorer's bundle to turns that your own people rated."),
}


class _Commands(TyperGroup):
    """Lists every known command and every registered one; imports a command once its name is on the command line."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._entries: dict[str, EntryPoint] = {each.name: each for each in entry_points(group=GROUP)}
        for name in (*KNOWN, *sorted(self._entries.keys() - KNOWN.keys())):
            distribution, summary = KNOWN.get(name, ("", ""))
            panel = None if name in self._entries else f"Commands of {distribution}, which is not installed"
            self.add_command(TyperCommand(name, help=summary, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        entry = self._entries.get(name or "")
        return name, _load(entry) if entry else _refuse(name or ""), rest


def find_engine(name: str) -> Any:
    """What opens the engine of that name. Raises BadParameter where there is none, or none is installed."""
    # Each of this group scores a file without a service, and takes bundles and scorers.
    for entry in entry_points(group="turnscore.engines", name=name):
        try:
            return _import(entry)
        except ModuleNotFoundError as error:
            told = f"{name} needs {error.name}, which is not installed: install {KNOWN_ENGINES.get(name)}"
            raise typer.BadParameter(told, param_hint="--engine") from None
    told = f"unknown engine {name!r}: use local, ray, or a URL"
    if name in KNOWN_ENGINES:
        told = f"{name} needs {KNOWN_ENGINES[name]}, which is not installed"
    raise typer.BadParameter(told, param_hint="--engine")


def _import(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "onnxruntime":
            raise
        # It comes in two distributions that own the same module, so no distribution of ours can require one.
        sys.exit(
            f"turnscore: `{entry.name}` needs ONNX Runtime: install the extra `cpu` of turnscore-core, or on a CUDA "
            "machine `gpu` (in a checkout: pip install ./clients './core[cpu]')"
        )


def _load(entry: EntryPoint) -> Any:
    found = _import(entry)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command()(found)
        found = single
    return typer.main.get_command(found)


def _refuse(name: str) -> Any:
    distribution = KNOWN[name][0]
    typer.echo(
        f"turnscore: `{name}` is a command of {distribution}, which is not installed (in a checkout: "
        f"pip install {FOLDERS[distribution]})",
        err=True,
    )
    raise typer.Exit(2)


def _print_versions(is_asked: bool) -> None:
    if not is_asked:
        return
    for name in FOLDERS:
        try:
            typer.echo(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    raise typer.Exit


app = typer.Typer(
    name="turnscore", cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


@app.callback()
def _turnscore(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_versions, is_eager=True, help="Print the installed versions and exit."
        ),
    ] = False,
) -> None:
    """Score dialogue turns while the conversation runs."""
