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
        self.reason = reason


class TooFewError(AssessmentError):
    """Too few systems, workers or dialogues for the figure that was asked for."""


class AgreementError(AssessmentError):
    """Agreement with people cannot be measured: nothing to compare, or no scores."""


class ReferencesError(AssessmentError):
    """An option or file of the caller cannot be used."""


class MissingResourceError(ReferencesError):
    """A metric needs something that is missing: data, vectors, an encoder, Java."""
