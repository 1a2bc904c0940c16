"""Check: one claim about a run, and what was found; and their table. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from turnscore_load.markdown import table


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about the run, and what was found."""

    claim: str
    found: str
    is_kept: bool


def check_table(found: Sequence[Check]) -> str:
    """The claims as a Markdown table."""
    return table(
        ["claim", "found", "kept"], [[each.claim, each.found, "yes" if each.is_kept else "NO"] for each in found]
    )
