"""Files and commands for tests: lines of JSON, lines that end too early, and where data sets are."""

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from turnscore_client import AsyncTurnScoreClient
from turnscore_client._command.registry import app
from turnscore_client._files.rows import Line
from turnscore_client._files.scoring import Pace, Patient
from turnscore_client.testing import ManualClock
from typer.testing import CliRunner


@asynccontextmanager
async def movable(address, tls=None):
    """Another address of the server, and what sends new connections elsewhere, or nowhere.

    It resets those that are open, unless it is `leaving` them. With `tls` only what comes encrypted is passed on.
    """
    target = address
    open_ends = []
    tasks = []

    async def carry(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()
        except (ConnectionError, ssl.SSLError):
            writer.close()

    async def connect(reader, writer):
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        open_ends.extend((writer, far_writer))
        tasks.append(asyncio.create_task(carry(reader, far_writer)))
        tasks.append(asyncio.create_task(carry(far_reader, writer)))

    async def move(to, leaving=False):
        nonlocal target
        if to is None:
            server.close()
        else:
            target = to
        if leaving:
            return
        for end in open_ends:
            end.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = await asyncio.start_server(connect, "127.0.0.1", 0, ssl=tls)
    bound = server.sockets[0].getsockname()[1]
    try:
        yield f"127.0.0.1:{bound}", move
    finally:
        await move(None)


def line_of(content, number=1):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Line(number, raw + b"\n", 0)


def patient_with(clock=None, most=4, wait=60.0, timeout=10.0, probe=None):
    clock = clock or ManualClock()
    pace = Pace(most, clock)
    return Patient(pace=pace, clock=clock, wait_seconds=wait, timeout_seconds=timeout, probe=probe)


def run_command(mock, *arguments):
    """What the `turnscore` command does at the mock, which gets the options of its client as headers and deadlines."""

    def open_client(url, *, api_key, timeout_seconds, **_):
        given = {"api_key": api_key, "timeout_seconds": timeout_seconds, "max_retries": 0, "clock": mock.clock}
        return AsyncTurnScoreClient(url, transport=mock.transport, **given)

    with patch("turnscore_client._files.runs.AsyncTurnScoreClient", open_client):
        result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def invoke(app, words, code=0):
    """What the command of a typer app said, after it ended with this exit status."""
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == code, done.output
    return done


def write_lines(path, *lines):
    """An object a line; a text stands as it is, so that a line may be broken."""
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


ROOT = Path(__file__).parents[2]
# `DATA=data` is where the Makefile looks, too; neither folder is in the repository.
FOLDERS = (ROOT / "data", ROOT.parent / "shared" / "data")


def find_data(*names):
    """The named files in the first folder that has all of them; skips the test where none has."""
    for folder in FOLDERS:
        paths = [folder / name for name in names]
        if all(path.exists() for path in paths):
            return paths
    pytest.skip(f"neither data/ nor ../shared/data has {', '.join(names)}")
