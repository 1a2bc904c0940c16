"""Variable names: which `TURNSCORE_*` there are. Refuses others, on which their owner would rely in vain."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import get_origin

from pydantic import BaseModel

PREFIX = "TURNSCORE_"
CLIENT_VARIABLES = frozenset({f"{PREFIX}API_KEY", f"{PREFIX}GRPC_ADDRESS", f"{PREFIX}URL"})
"""What our clients and commands read; they may share an environment with the service."""
_OF_A_CLUSTER = re.compile(
    r"TURNSCORE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Kubernetes describes each of its services so to every container, ours too where its service is called turnscore."""
_OF_A_CLUSTER_PORT = re.compile(r"TURNSCORE_(\w+_)?PORT")
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def refusal_of_unknown(settings: type[BaseModel], environment: Mapping[str, str]) -> str:
    """A line for each variable that nobody reads, with the nearest that there is; empty where all are known.

    Names are compared as the settings are read, in any case. No value is repeated.
    """
    known = {**dict(_names_of(settings, PREFIX)), **dict.fromkeys(CLIENT_VARIABLES, False)}
    endings = [each.removeprefix(PREFIX) for each in known]  # with the prefix everything would be alike
    lines = []
    for name in sorted(each for each in environment if each.upper().startswith(PREFIX)):
        if not _is_known(name.upper(), environment[name], known):
            near = get_close_matches(name.upper().removeprefix(PREFIX), endings, n=1)
            lines.append(f"{name}: there is no such setting{f'; did you mean {PREFIX}{near[0]}?' if near else ''}")
    return "\n".join(lines)


def _is_known(name: str, value: str, known: Mapping[str, bool]) -> bool:
    parts = name.split("__")
    is_entry = any(known.get("__".join(parts[:count]), False) for count in range(1, len(parts)))
    is_port = _OF_A_CLUSTER_PORT.fullmatch(name) and _ADDRESS.match(value)
    return bool(name in known or is_entry or is_port or _OF_A_CLUSTER.fullmatch(name))


def _names_of(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, bool]]:
    """Every setting and group of settings, and whether it is a mapping, whose entries are variables too."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}".upper(), get_origin(field.annotation) is dict
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _names_of(field.annotation, f"{prefix}{name}__")
