"""Short rules: the shipped rules with each group's times divided, so that a day of them fits into a minute. Pure."""

import re
from collections.abc import Mapping
from datetime import timedelta

FACTORS: Mapping[str, float] = {"turnscore-service": 30, "turnscore-values": 1440}
"""By group: an hour becomes two minutes, and a day one. Chosen: the shortest window of a group holds five scrapes."""
_LEAST_INTERVAL = timedelta(seconds=0.5)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_GROUP = re.compile(r"^  - name: (\S+)$", re.MULTILINE)
_WINDOW = re.compile(r"\[(\d+)([smhd])\]")
_WAIT = re.compile(r"^(        for: )(\d+)([smhd])$", re.MULTILINE)
_INTERVAL = re.compile(r"^(    interval: )(\d+)([smhd])$", re.MULTILINE)


class UnknownGroupError(Exception):
    """The rules have a group whose factor is not known."""


def shorten(rules: str, factors: Mapping[str, float] = FACTORS) -> str:
    """The rules with every window, wait and interval divided by their group's factor. Raises UnknownGroupError.

    Series keep their names: `turnscore:slow_share:1h` is then of a minute.
    """
    head, *parts = _GROUP.split(rules)
    shortened = [head]
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name not in factors:
            raise UnknownGroupError(f"nobody says by what the times of the group {name} are divided")
        shortened += [f"  - name: {name}", _shorten_group(body, factors[name])]
    return "".join(shortened)


def _shorten_group(body: str, factor: float) -> str:
    body = _WINDOW.sub(lambda found: f"[{_divide(found[1], found[2], factor)}]", body)
    body = _WAIT.sub(lambda found: found[1] + _divide(found[2], found[3], factor), body)
    return _INTERVAL.sub(lambda found: found[1] + _divide(found[2], found[3], factor, _LEAST_INTERVAL), body)


def _divide(number: str, unit: str, factor: float, least: timedelta = timedelta(0)) -> str:
    """As Prometheus writes times."""
    return f"{max(timedelta(seconds=int(number) * _SECONDS[unit]) / factor, least) // timedelta(milliseconds=1)}ms"


def alerts_of(rules: str) -> dict[str, float]:
    """Every alert's factor, by its name, in the rules' order."""
    _, *parts = _GROUP.split(rules)
    return {
        alert: FACTORS.get(name, 1)
        for name, body in zip(parts[::2], parts[1::2], strict=True)
        for alert in re.findall(r"^      - alert: (\S+)$", body, re.MULTILINE)
    }
