"""The errors of assessment; each message names the file, the line or the field."""

from pathlib import Path


class AssessmentError(Exception):
    """Anything that stops an assessment and that the user can act on."""


class BadFileError(AssessmentError):
    """A line of a file cannot be read; `line` counts from 1, 0 is the file as a whole."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}")
        self.path = path
        self.line = line


class BadRatingsError(BadFileError):
    """A line of a ratings file cannot be read."""


class TooFewError(AssessmentError):
    """Too few systems, workers or dialogues for the figure that was asked for."""


class BadDataError(AssessmentError):
    """A row of a data file cannot be read; `row` counts from 1."""

    def __init__(self, path: Path, row: int, reason: str) -> None:
        super().__init__(f"{path}, row {row}: {reason}")
        self.path = path
        self.row = row


class AgreementError(AssessmentError):
    """Agreement with people cannot be measured: nothing to compare, or no scores."""


class ReferencesError(AssessmentError):
    """An option or file of the caller cannot be used."""


class UnreadableRowError(ReferencesError):
    """A line of a file is not a row."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")


class UnknownMetricError(ReferencesError):
    """No metric has this name."""


class MissingResourceError(ReferencesError):
    """A metric needs something that is missing: data, vectors, an encoder, Java."""
