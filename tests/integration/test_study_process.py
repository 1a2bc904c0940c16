"""The two commands of the documented trial, as processes: links, a conversation, and an end on SIGTERM."""

import re
import signal
import sys
from pathlib import Path

import httpx
from turnscore_load.machine import free_port
from turnscore_load.processes import Process, started

PROGRAM = Path(sys.executable).with_name("turnscore")


def program(folder, *words):
    """The command, which is ready when it says that it serves."""
    process = Process([PROGRAM, "study", *words], folder)
    process.ready = lambda: "serving" in process.log_end()
    return process


def test_two_commands_run_a_study_of_demo_chatbots(tmp_path):
    demo, port = str(free_port()), str(free_port())
    study = program(tmp_path / "study", "serve", str(tmp_path / "STUDY.toml"), "--port", port, "--invite", "1")
    with (
        started(program(tmp_path / "demo", "demo", str(tmp_path), "--port", demo)),
        started(study),
        httpx.Client(transport=httpx.HTTPTransport(retries=20), timeout=30) as client,
    ):
        [(origin, link)] = re.findall(r"(http://127\.0\.0\.1:\d+)/#(\S+)", study.log_end())
        headers = {"Authorization": f"Bearer {link}", "Origin": origin}
        seen = client.get(f"{origin}/api/standing", headers=headers)
        assert "server" not in seen.headers
        fields = {"consent_hash": seen.json()["study"]["consent_hash"]}
        client.post(f"{origin}/api/agreement", json=fields, headers=headers)
        dialogue = client.post(f"{origin}/api/begin", json={}, headers=headers).json()["dialogue"]["id"]
        message = {"dialogue": dialogue, "number": 0, "text": "hello"}
        assert client.post(f"{origin}/api/message", json=message, headers=headers).json()["reply"]
    assert study.process.returncode in (0, -signal.SIGTERM)
    assert list(tmp_path.glob("demo.sqlite3*")) == [tmp_path / "demo.sqlite3"]  # closed as it should be
