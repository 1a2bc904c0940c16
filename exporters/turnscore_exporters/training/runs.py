"""A training run: the files in its folder, and the choices on its command line."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import read_json, write_json

REPORT_FILE, TRAINING_FILE, STATE_FOLDER = "report.json", "training.json", "state"
DATA_FILE = "data.json"
"""Below the state folder: the data files that the training began with, and their bytes."""
DATA_SUFFIXES = (".gz", ".jsonl", ".csv", ".txt")

Choice = TypeVar("Choice", bound=StrEnum)


def parse_choice(kind: type[Choice], value: str, option: str) -> Choice:
    """The choice of that value; ExporterError listing the choices."""
    try:
        return kind(value)
    except ValueError as error:
        raise ExporterError(f"--{option} is {value!r}, expected one of {', '.join(kind)}") from error


def claim_folder(output: Path, data: Path) -> None:
    """Notes what data the training in the folder is on, as it may go on from a state there.

    ExporterError where it began with files of the same names and other lengths, such as those of the sample.
    """
    place = output / STATE_FOLDER / DATA_FILE
    known = read_json(place)
    files = (path for path in sorted(data.rglob("*")) if path.suffix in DATA_SUFFIXES and output not in path.parents)
    found = {str(path.relative_to(data)): path.stat().st_size for path in files}
    changed = sorted(name for name in known.keys() & found.keys() if known[name] != found[name])
    if changed:
        raise ExporterError(f"{output}: holds a training on another {changed[0]}; choose another folder")
    if found:
        write_json(place, {**known, **found})


def claim_choices(place: Path, choices: Mapping[str, object]) -> None:
    """Notes what a folder's figures are of in that file; ExporterError where it says otherwise."""
    known = read_json(place)
    if known and known != choices:
        said = ", ".join(f"{name} {value}" for name, value in known.items())
        raise ExporterError(f"{place}: the figures there are of {said}; choose another folder")
    write_json(place, choices)
