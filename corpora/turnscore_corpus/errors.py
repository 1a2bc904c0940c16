"""The errors of a run: what stops it and what the user can act on. A row that cannot be scored is not among them.

CorpusError
├── BadInputError        a file cannot be read, or is torn
├── BadColumnsError      a column that was named is not in a file
├── ChangedJobError      the output folder holds another job's blocks
├── BusyOutputError      another run writes into the output folder
├── BadOutputError       the output folder holds something that no run wrote
└── RunStoppedError         the run ended before its last block; the same command resumes it
"""

from collections.abc import Sequence


class CorpusError(Exception):
    """Anything that stops a run and that the user can act on."""


class BadInputError(CorpusError):
    """A file of the input cannot be read; the message names it."""


class BadColumnsError(CorpusError):
    """A column is missing; the message names it, the file, and the columns that the file has."""

    def __init__(self, option: str, column: str, file: str, known: Sequence[str]) -> None:
        super().__init__(f"{option}: {file} has no column {column!r}; it has {', '.join(known) or 'none'}")
        self.option = option
        self.column = column


class ChangedJobError(CorpusError):
    """The folder was begun with another input, model, option or column; `differences` names each."""

    def __init__(self, folder: str, differences: Sequence[str]) -> None:
        told = "; ".join(differences)
        super().__init__(f"{folder} was begun with another job: {told}. Name another folder, or repeat the first job")
        self.differences = tuple(differences)


class BusyOutputError(CorpusError):
    """Another run writes into the folder; the message names its owner."""


class BadOutputError(CorpusError):
    """The folder, or a file in it, is not what a run writes."""


class RunStoppedError(CorpusError):
    """The run ended early; what it committed stays."""
