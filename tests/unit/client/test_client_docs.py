"""The client's pages: every snippet runs, every command is one, every error is listed."""

import json
import re
import shlex
import textwrap
from functools import partial
from pathlib import Path

import httpx
import pytest
from turnscore_client import AsyncTurnScoreClient
from turnscore_client._command.app import app
from turnscore_client._errors import ERROR_CLASSES, ConnectionFailedError, UnexpectedReplyError
from turnscore_client._grpc import sync_door
from turnscore_client._http import sending
from turnscore_client._http.bounded_transport import BoundedTransport
from turnscore_client._mock.grpc_answers import answer
from turnscore_client._sync.http_door import HttpDoor
from turnscore_client._sync.mock_connections import MockGrpcChannel
from turnscore_client.testing import MockTurnScore
from typer.testing import CliRunner

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "clients" / "README.md",
    ROOT / "docs" / "client.md",
    ROOT / "docs" / "integrations.md",
    ROOT / "docs" / "messages.md",
]


def blocks(language: str) -> list:
    return [
        pytest.param(block, id=f"{page.stem}-{place}")
        for page in PAGES
        for place, block in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL))
    ]


@pytest.mark.parametrize("snippet", blocks("python"))
def test_every_snippet_runs(snippet, monkeypatch, capsys):
    mock = MockTurnScore()
    monkeypatch.setattr(BoundedTransport, "handle_request", lambda _, request: mock.transport.handle_request(request))
    monkeypatch.setattr(
        httpx.AsyncHTTPTransport,
        "handle_async_request",
        lambda _, request: mock.transport.handle_async_request(request),
    )
    monkeypatch.setattr(sending, "context_of", lambda *_: None)
    monkeypatch.setattr(HttpDoor, "open_line", lambda *_: mock.transport.open_line({}))
    channel = MockGrpcChannel(partial(answer, mock.transport), mock.transport.open_line)
    monkeypatch.setattr(sync_door, "open_channel", lambda *_: channel)
    monkeypatch.setattr(sync_door, "credentials_of", lambda _: None)
    monkeypatch.setattr(sync_door.GrpcDoor, "open_line", lambda *_: mock.transport.open_line({}))
    names: dict = {}
    exec(compile(textwrap.dedent(snippet), "snippet", "exec"), names)
    if "client" in names:
        names["client"].close()
    assert capsys.readouterr().out


@pytest.mark.parametrize("commands", blocks("sh"))
def test_every_turnscore_command_runs(commands, mock, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("dialogue.jsonl").write_text(json.dumps({"response": "hello"}) + "\n")
    for line in commands.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "turnscore":
            result = CliRunner().invoke(
                app, words[1:], obj=lambda url, *_: AsyncTurnScoreClient(url, transport=mock.transport)
            )
            assert result.exit_code == 0, result.output
        else:
            assert words[:2] == ["pip", "install"]


def test_the_table_of_errors_is_complete():
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGES[1].read_text(), re.MULTILINE))
    classes = [*ERROR_CLASSES.values(), ConnectionFailedError, UnexpectedReplyError]
    assert rows == {error_class.__name__: str(error_class.code) for error_class in classes}
