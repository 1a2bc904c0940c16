"""Mix: how many users of each kind take part, as the command line names it. Pure."""

from collections.abc import Collection

DEFAULT_MIX = "conversation=24,flood=1,batch=1"
"""Chosen: people whose chatbots must be quick, while somebody else keeps two cores busy."""


def read_mix(text: str, kinds: Collection[str]) -> dict[str, int]:
    """`conversation=24,flood=1` as a mapping, kinds with 0 left out. Raises ValueError for anything else."""
    mix: dict[str, int] = {}
    for part in text.split(","):
        kind, _, number = part.strip().partition("=")
        if kind not in kinds or kind in mix or not number.isdecimal():
            raise ValueError(f"a mix is KIND=NUMBER,... with each of {', '.join(sorted(kinds))} at most once")
        mix[kind] = int(number)
    present = {kind: users for kind, users in mix.items() if users}
    if not present:
        raise ValueError("a mix needs at least one user")
    return present
