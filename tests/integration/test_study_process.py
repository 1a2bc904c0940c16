"""The two commands of the documented trial, as processes: links, a conversation, and an end on SIGTERM."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from turnscore_load.machine import free_port

PROGRAM = Path(sys.executable).with_name("turnscore")


@contextmanager
def running(*words: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The command, and what it said until it serves."""
    process = subprocess.Popen([PROGRAM, "study", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    assert process.stdout is not None
    try:
        while "serving" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        yield process, said
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        process.wait(60)
        process.stdout.close()


def test_two_commands_run_a_study_of_demo_chatbots(tmp_path: Path) -> None:
    demo, port = str(free_port()), str(free_port())
    with (
        running("demo", str(tmp_path), "--port", demo),
        running("serve", str(tmp_path / "STUDY.toml"), "--port", port, "--invite", "1") as (study, said),
        httpx.Client(transport=httpx.HTTPTransport(retries=20), timeout=30) as client,
    ):
        [(origin, link)] = re.findall(r"(http://127\.0\.0\.1:\d+)/#(\S+)", said)
        headers = {"Authorization": f"Bearer {link}", "Origin": origin}
        seen = client.get(f"{origin}/api/standing", headers=headers)
        assert "server" not in seen.headers
        fields = {"consent_hash": seen.json()["study"]["consent_hash"]}
        client.post(f"{origin}/api/agreement", json=fields, headers=headers)
        dialogue = client.post(f"{origin}/api/begin", json={}, headers=headers).json()["dialogue"]["id"]
        message = {"dialogue": dialogue, "number": 0, "text": "hello"}
        assert client.post(f"{origin}/api/message", json=message, headers=headers).json()["reply"]
    assert study.returncode in (0, -signal.SIGTERM)
    assert list(tmp_path.glob("demo.sqlite3*")) == [tmp_path / "demo.sqlite3"]  # closed as it should be
