"""Doors: how one user's items reach the service. A door sends and judges; it counts nothing.

A further door is another class with `Door`'s methods and a line in `DOORS`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError

from turnscore_load.address import LOOPBACK, Ports
from turnscore_load.answers import Answer, judge_http
from turnscore_load.pace import PATIENCE_SECONDS
from turnscore_load.traffic import Item
from turnscore_load.users.grpc_user_doors import GrpcDoor


class Door(Protocol):
    """One user's connection. Its calls raise nothing: what goes wrong is an answer too."""

    kind: str
    """The request type in Locust's statistics."""

    def score(self, item: Item) -> Answer:
        """Asks for one turn."""
        ...

    def score_batch(self, items: Sequence[Item]) -> Answer:
        """Asks for several turns in one call."""
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class HttpDoor:
    """One kept connection to the HTTP door."""

    kind = "HTTP"

    def __init__(self, ports: Ports) -> None:
        self._client = HTTPClient(
            LOOPBACK,
            ports.http,
            headers={"Content-Type": "application/json"},
            concurrency=1,
            connection_timeout=PATIENCE_SECONDS,
            network_timeout=PATIENCE_SECONDS,
            disable_ipv6=True,
        )

    def score(self, item: Item) -> Answer:
        return self._post("/v1/score", item)

    def score_batch(self, items: Sequence[Item]) -> Answer:
        return self._post("/v1/score_batch", {"items": items})

    def close(self) -> None:
        self._client.close()

    def _post(self, path: str, body: Mapping[str, Any]) -> Answer:
        try:
            reply = self._client.post(path, json.dumps(body).encode())
            content = bytes(reply.read())
        except (OSError, HTTPParseError) as error:
            return judge_http(0, None, b"", f"no reply: {type(error).__name__}")
        retry_after = reply.get("retry-after")
        return judge_http(reply.status_code, retry_after if isinstance(retry_after, str) else None, content)


DOORS: Mapping[str, Callable[[Ports], Door]] = MappingProxyType({"http": HttpDoor, "grpc": GrpcDoor})
"""Doors by their name on the command line."""
