"""Admin messages: what `turnscore models serve` asks a running service over its sockets, and what a worker replies.

A worker listens on a Unix socket in the folder that `TURNSCORE_ADMIN__FOLDER` names. One line of JSON goes each way.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from turnscore_models.manifest import BundleError

FOLDER_VARIABLE = "TURNSCORE_ADMIN__FOLDER"
SOCKET_SUFFIX = ".sock"
MOST_BYTES = 65_536  # of an order, whose reference has 4,096 characters at most; chosen
_CONNECT_SECONDS = 5.0
# A model of some gigabytes is read and proved in minutes; then the old one's requests are waited for.
_ANSWER_SECONDS = 900.0


class AdminError(BundleError):
    """No worker could be asked; the message says where and why."""


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AdminOrder(_Message):
    """What a worker is to do."""

    action: Literal["serve", "reload", "status"]
    reference: Annotated[str, Field(min_length=1, max_length=4096)] | None = None

    @model_validator(mode="after")
    def _serve_has_a_reference(self) -> "AdminOrder":
        if (self.action == "serve") != (self.reference is not None):
            raise ValueError("serve, and nothing else, needs a reference")
        return self


class MemoryReadings(_Message):
    """Resident memory of the worker around a switch."""

    before_bytes: int
    between_bytes: int = Field(description="With both versions loaded.")
    after_bytes: int


class AdminReport(_Message):
    """What a worker did, and what it serves since."""

    worker: int
    pid: int
    outcome: Literal["switched", "unchanged", "refused", "serving"]
    reason: str = Field(default="", description="Why it was refused, or what else should be known.")
    replaced: dict[str, str] = Field(default_factory=dict, description="The model before, by the one in its place.")
    models: dict[str, str] = Field(default_factory=dict, description="What is served, by scorer.")
    seconds: float = 0.0
    memory: MemoryReadings | None = None


def ask_workers(folder: Path, order: AdminOrder) -> Iterator[AdminReport]:
    """Each worker's report, one worker after the other, so that no more than one loads at a time.

    A refusal ends it: the workers behind it keep what they serve. Raises AdminError where no worker listens in the
    folder, or one does not answer.
    """
    sockets = sorted(folder.glob(f"*{SOCKET_SUFFIX}"))
    asked = 0
    for path in sockets:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_CONNECT_SECONDS)
            try:
                connection.connect(str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                continue  # left behind by a worker that was killed
            except OSError as error:
                raise AdminError(f"{path} cannot be asked: {error.strerror or error}") from error
            asked += 1
            report = _ask(connection, path, order)
        yield report
        if report.outcome == "refused":
            return
    if not asked:
        raise AdminError(f"no service listens in {folder}; {FOLDER_VARIABLE} of the service names its folder")


def describe(report: AdminReport) -> str:
    """One line about what a worker did."""
    who = f"worker {report.worker} (process {report.pid}): {report.outcome}"
    replaced = ", ".join(f"{new} instead of {old}" for new, old in report.replaced.items())
    served = ", ".join(report.models.values())
    parts = [replaced or f"serves {served or 'nothing'}"]
    if report.outcome == "refused":
        parts = [report.reason, f"still serves {served or 'nothing'}"]
    elif report.memory is not None:
        sizes = (report.memory.before_bytes, report.memory.between_bytes, report.memory.after_bytes)
        before, between, after = (round(size / 1024**2) for size in sizes)
        parts.append(f"{report.seconds:.1f} s; memory {before} MiB before, {between} between, {after} after")
    if report.outcome != "refused" and report.reason:
        parts.append(report.reason)
    return "; ".join([f"{who}: {parts[0]}", *parts[1:]])


def _ask(connection: socket.socket, path: Path, order: AdminOrder) -> AdminReport:
    connection.settimeout(_ANSWER_SECONDS)
    try:
        connection.sendall(order.model_dump_json(exclude_none=True).encode() + b"\n")
        with connection.makefile("rb") as reply:
            return AdminReport.model_validate_json(reply.readline(1 << 20))
    except TimeoutError:
        raise AdminError(f"the worker at {path} has not answered for {_ANSWER_SECONDS:g} s") from None
    except (OSError, ValidationError) as error:
        raise AdminError(f"the worker at {path} ended before it answered") from error
