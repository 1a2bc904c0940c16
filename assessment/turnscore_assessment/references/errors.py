"""Errors of this room: each names what is wrong and, in a file, where."""

from turnscore_assessment.errors import AssessmentError


class ReferencesError(AssessmentError):
    """Something that the caller gave cannot be used."""


class UnreadableRowError(ReferencesError):
    """A line of a file is no row."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")


class UnknownMetricError(ReferencesError):
    """A name that no metric has."""


class MissingResourceError(ReferencesError):
    """A metric needs something that is not here: data, vectors, an encoder, Java."""
