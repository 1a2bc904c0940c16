"""The examples of README, recipes, integrations and the API's pages run on the starter models and do what they say.

Values are compared with the README's alone, as another model changes them: what a gate gates, what ranks first and
which label a reply has are what a reader relies on.
"""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support import plain_http
from support.fakes import FakeEncoder
from support.transports import served_app
from turnscore_client.integrations import QualityGate
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_models.bundle import read_bundle, starter_bundles

ROOT = Path(__file__).parents[2]
VIVID = "i hiked up a volcano and nearly lost my hat. ever been on one?"
GOOD = "i went for a swim in the lake, it was freezing! and you?"
NOWHERE = "http://127.0.0.1:9"
PAGES = ("README.md", "clients/README.md", "docs/client.md", "docs/api.md", "docs/integrations.md", "docs/corpora.md")


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for named, block in found if named == language]


GATE, BEST, WEBHOOK = blocks("docs/integrations.md", "python")[:3]
[NIGHTLY] = blocks("docs/integrations.md", "sh")
[SHOWN] = blocks("README.md", "python")
CALLED, PRINTED = blocks("README.md", "")
SNIPPETS = [
    pytest.param(block, id=f"{page}-{place}")
    for page in PAGES
    for place, block in enumerate(blocks(page, "python"))
    if "scores.example" not in block and "WEBHOOK_URL" not in block  # TLS is in tests/e2e, the webhook below
]
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="module")
def served():
    """The addresses of HTTP and gRPC; the starters but FED, and an encoder, of which none ships."""
    bundles = [read_bundle(folder) for folder in starter_bundles() if folder.name != "fed"]
    loaded = {each.manifest.name: load_scorer(each, choose_variant(each), threads=1) for each in bundles}
    with served_app(encoder=FakeEncoder(), **loaded) as addresses:
        yield addresses


@pytest.fixture
def ran(served, monkeypatch, capsys):
    """What a snippet prints, with the service at its default address or at another one."""

    def run(snippet, url=served[0], **environment):
        for name, value in {"TURNSCORE_URL": url, **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(ROOT)
        snippet = snippet.replace("http://localhost:3000", url).replace("localhost:50051", served[1])
        snippet = re.sub(r"(timeout|deadline)_seconds=[\d.]+", r"\1_seconds=30", snippet)  # this machine may be busy
        names = {"__name__": "snippet"}
        exec(compile(snippet, "snippet", "exec"), names)
        for name in {"client", "gate"} & names.keys():  # left open by their examples
            names[name].close()
        return capsys.readouterr().out.strip()

    return run


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_snippet_runs_and_prints(ran, snippet):
    assert ran(snippet)


CURL = re.compile(r"curl (?:-s )?(?:localhost|127\.0\.0\.1):3000(/v1/\w+) [^']*'[^']*' -d '(.*?)'(?:\n|$)", re.DOTALL)
CALLS = [
    pytest.param(path, json.loads(body), id=f"{page}-{path}")
    for page in ("README.md", "docs/api.md", "docs/references.md", "docs/deploy.md")
    for path, body in CURL.findall((ROOT / page).read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_every_call_by_curl_is_answered(path, body, served):
    reply = plain_http.post(f"{served[0]}{path}", json=body)
    assert reply.status_code == 200, reply.text
    if path == "/v1/rank":
        best = reply.json()["candidates"][0]["index"]
        assert body["candidates"][best] == VIVID
    if path == "/v1/rerank":
        [result] = reply.json()["results"]
        assert body["documents"][result["index"]] == VIVID
    assert len(CALLS) >= 4


def test_the_first_call_gives_what_the_readme_shows(served):
    command = CALLED.replace("localhost:3000", served[0].removeprefix("http://"))
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    shown, got = json.loads(blocks("README.md", "json")[0]), json.loads(done.stdout)
    assert (list(got), list(got["scores"])) == (list(shown), list(shown["scores"]))
    for name, score in shown["scores"].items():
        assert list(got["scores"][name]) == list(score)
        assert got["scores"][name]["value"] == pytest.approx(score["value"], abs=0.02)
        assert got["scores"][name]["tokens"] == score["tokens"]


def test_the_first_example_prints_what_the_readme_shows(ran):
    form = re.compile(r"(\w+), percentile (\d+): (.*)")
    for line, expected in zip(ran(SHOWN).splitlines(), PRINTED.splitlines(), strict=True):
        (label, percentile, text), shown = (form.fullmatch(each).groups() for each in (line, expected))
        assert (label, text) == (shown[0], shown[2])
        assert abs(int(percentile) - int(shown[1])) <= 3


def test_the_gate_writes_a_bare_reply_again_and_lets_a_good_one_through(ran):
    assert ran(GATE).splitlines() == [VIVID, "1 low, 0 passed, 0 unknown"]
    assert ran(GATE.replace('"ok."', f'"{GOOD}"')).splitlines() == [GOOD, "0 low, 1 passed, 0 unknown"]
    assert ran(GATE, NOWHERE).splitlines() == ["ok.", "0 low, 0 passed, 1 unknown"]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("no! i told you twice already, the link does not work. this is so frustrating, you are useless", "a person"),
        ("great, that worked, thank you so much!", "you're welcome! anything else?"),
    ],
)
def test_a_gate_hands_a_frustrated_user_over(served, said, answer):
    gate = QualityGate(on_user="frustrated", hand_over="a person", url=served[0], deadline_seconds=30)
    messages = [
        {"role": "user", "content": "i cannot sign in"},
        {"role": "assistant", "content": "i have sent you a reset link."},
        {"role": "user", "content": said},
    ]
    assert gate.choose(messages, "you're welcome! anything else?") == answer
    gate.close()


def test_the_best_of_several_is_the_one_that_answers(ran):
    assert ran(BEST) == VIVID
    assert ran(BEST, NOWHERE) == "ok."


@contextmanager
def webhook():
    """An address, and what was posted to it."""
    posted = []

    class Webhook(plain_http.Handler):
        def do_POST(self):
            posted.append(json.loads(self.body()))
            self.answer(204)

    with plain_http.handled_by(Webhook) as url:
        yield f"{url}/low", posted


def test_a_low_reply_is_reported_without_its_text(ran):
    with webhook() as (address, posted):
        assert ran(WEBHOOK, WEBHOOK_URL=address) == "chat-7 goes to a person"
        assert ran(WEBHOOK.replace('"ok."', f'"{GOOD}"'), WEBHOOK_URL=address) == ""
    [told] = posted
    assert (told["conversation"], told["message"], list(told["percentiles"])) == ("chat-7", 1, ["quality"])


def test_a_nights_conversations_are_scored_once_however_often_the_script_runs(tmp_path, served):
    day = datetime.now().astimezone().date() - timedelta(days=1)
    for folder in ("chats", "scores"):
        (tmp_path / folder).mkdir()
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "i see, and you?"}]
    with gzip.open(tmp_path / "chats" / f"{day}.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"id": f"c-{number}", "messages": messages}) + "\n" for number in range(20))
    environment = {**os.environ, "PATH": PATH, "TURNSCORE_URL": served[0]}
    kept = []
    for _ in range(2):
        done = subprocess.run(["sh", "-c", NIGHTLY], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        kept.append((tmp_path / "scores" / f"{day}.jsonl.gz").read_bytes())
    rows = [json.loads(line) for line in gzip.decompress(kept[0]).splitlines()]
    assert [row["id"] for row in rows] == [f"c-{number}" for number in range(20)]
    assert all(row["messages"][1]["scores"]["quality"]["value"] > 0 for row in rows)
    assert kept[0] == kept[1]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node: apt-get install nodejs")
def test_the_examples_of_the_javascript_client_run(served):
    script = "\n".join(blocks("clients/javascript/README.md", "js")).replace("http://localhost:3000", served[0])
    command = ["node", "--no-warnings", "--experimental-websocket", "--input-type=module"]
    done = subprocess.run(
        command, cwd=ROOT / "clients/javascript", input=script, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    first, turn, ended, background, *mocked = done.stdout.splitlines()
    assert re.fullmatch(r"[\d.]+ (good|fair)", first)
    assert re.fullmatch(r"[\d.]+ [\d.]+", turn)
    assert ended == "ended: by us"
    assert re.fullmatch(r"chat 7 [\d.]+", background)
    assert mocked == ["0.9", "3"]


@pytest.mark.parametrize("commands", blocks("docs/client.md", "sh"))
def test_the_commands_of_the_client_run(commands, served, tmp_path):
    (tmp_path / "dialogue.jsonl").write_text(json.dumps({"response": "hello"}) + "\n")
    environment = {**os.environ, "PATH": PATH, "TURNSCORE_URL": served[0]}
    for line in commands.splitlines():
        if not line.startswith("pip install"):
            done = subprocess.run(
                shlex.split(line), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
