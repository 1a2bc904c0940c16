"""A training run: the files that it leaves in its folder, and the choices that its command line names."""

from enum import StrEnum
from typing import TypeVar

from turnscore_exporters.errors import ExporterError

REPORT_FILE, TRAINING_FILE, STATE_FOLDER = "report.json", "training.json", "state"

Choice = TypeVar("Choice", bound=StrEnum)


def parse_choice(kind: type[Choice], value: str, option: str) -> Choice:
    """The choice of that value; ExporterError listing what there is."""
    try:
        return kind(value)
    except ValueError as error:
        raise ExporterError(f"--{option} is {value!r}, expected one of {', '.join(kind)}") from error
