"""The recipes of docs/recipes.md, each run as it stands there, against a service without models."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support.fakes import FakeScorer
from support.served_app import served_app

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
GATE, BEST, WEBHOOK = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
[NIGHTLY] = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
VIVID = "i hiked up a volcano and nearly lost my hat. ever been on one?\n"
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service whose scores count words; less than three are low."""
    scorer = FakeScorer()
    scorer.threshold = 0.025
    with served_app(quality=scorer) as started:
        yield started


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What a recipe prints, with a service at that address."""

    def run(recipe: str, address: str, **environment: str) -> str:
        for name, value in {"TURNSCORE_URL": address, **environment}.items():
            monkeypatch.setenv(name, value)
        exec(compile(recipe, "recipe", "exec"), {"__name__": "recipe"})
        return capsys.readouterr().out

    return run


def test_the_gate_lets_the_bot_answer_again_and_never_holds_a_reply_back(ran, url: str):
    assert ran(GATE, url) == VIVID
    assert ran(GATE.replace('else "ok."', 'else "not so much today."'), url) == "not so much today.\n"
    assert ran(GATE, NOBODY) == "ok.\n"


def test_the_best_of_the_candidates_is_said_and_the_first_without_a_service(ran, url: str):
    assert ran(BEST, url) == VIVID
    assert ran(BEST, NOBODY) == "ok.\n"


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """An address, and what was posted to it."""
    posted: list[dict[str, object]] = []

    class Catcher(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Catcher) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/low", posted
        server.shutdown()
        thread.join()


def test_a_low_reply_reaches_a_person_without_its_text(ran, url: str, webhook):
    address, posted = webhook
    assert ran(WEBHOOK, url, WEBHOOK_URL=address) == "chat-7 goes to a person\n"
    assert posted == [{"conversation": "chat-7", "message": 1, "percentiles": {"quality": 1.0}}]
    assert ran(WEBHOOK.replace('"ok."', '"not so much today."'), url, WEBHOOK_URL=address) == ""
    assert len(posted) == 1


def test_a_nights_conversations_are_scored_once_however_often_it_is_started(tmp_path: Path, url: str):
    day = datetime.now().astimezone().date() - timedelta(days=1)
    for folder in ("chats", "scores"):
        (tmp_path / folder).mkdir()
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "i see, and you?"}]
    with gzip.open(tmp_path / "chats" / f"{day}.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"id": f"c-{number}", "messages": said}) + "\n" for number in range(20))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "TURNSCORE_URL": url}
    scores = tmp_path / "scores" / f"{day}.jsonl.gz"
    kept: list[bytes] = []
    for _ in range(2):
        done = subprocess.run(["sh", "-c", NIGHTLY], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        kept.append(scores.read_bytes())
    rows = [json.loads(line) for line in gzip.decompress(kept[0]).splitlines()]
    assert [row["id"] for row in rows] == [f"c-{number}" for number in range(20)]
    assert {row["messages"][1]["scores"]["quality"]["value"] for row in rows} == {0.04}
    assert kept[0] == kept[1]
    assert "20 lines are in" in done.stderr
