"""What is known of a row before its dialogue is read."""

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
    """The end of a row, for planning."""

    size_bytes: int
    """Bytes of the row, unpacked; an estimate where the rows are not read."""
    end: int | None
    """The position of the next row in the file; None where reading cannot begin there."""
    dialogue: str | None = None
    """The dialogue that the row belongs to, where a row is a turn and names one."""
