"""What is passed on of a row before anybody looks into it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """One row: its number from 1, and its fields or why they cannot be read."""

    row: int
    fields: Mapping[str, Any] | None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a row, as planning needs it."""

    size_bytes: int
    """Bytes of the row, unpacked; an estimate where the rows are not read."""
    end: int | None
    """Where the next row begins in the file; None where nobody can begin there."""
    dialogue: str | None = None
    """The dialogue that the row is a turn of, where a row is a turn and names one."""
