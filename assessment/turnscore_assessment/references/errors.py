"""The errors of references: each names what is wrong and, in a file, where."""

from turnscore_assessment.errors import AssessmentError


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
