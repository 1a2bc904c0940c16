"""The client for JavaScript: its own tests in Node, against a service of this process; its names, types and copies."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from support.fakes import FakeScorer
from support.transports import served_app
from turnscore_service.api.page import read_page
from turnscore_service.settings.api import AuthSettings, KeyEntry
from turnscore_service.settings.service import Settings

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "clients" / "javascript"
NODE = shutil.which("node")
KEY = "ts_secret"


def node_flags() -> list[str]:
    """Node 20 and 21 have a WebSocket behind a flag."""
    assert NODE is not None
    major = int(
        subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True).stdout[1:].split(".")[0]
    )
    if major < 20:
        pytest.skip(f"Node {major} is older than 20")
    return ["--experimental-websocket"] if major < 22 else []


@pytest.mark.skipif(NODE is None, reason="there is no Node: apt-get install nodejs")
def test_its_own_tests_pass_in_node():
    known = KeyEntry(sha256=hashlib.sha256(KEY.encode()).hexdigest())
    settings = Settings(auth=AuthSettings(keys={"page": known}))
    with served_app(settings, fake=FakeScorer()) as url:
        done = subprocess.run(
            [NODE, *node_flags(), "--test", "--test-reporter=tap", "test/"],
            cwd=FOLDER,
            env={**os.environ, "TURNSCORE_URL": url, "TURNSCORE_API_KEY": KEY, "NODE_NO_WARNINGS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout
    counted = dict(re.findall(r"^# (pass|fail|skipped) (\d+)$", done.stdout, re.MULTILINE))
    assert counted["skipped"] == counted["fail"] == "0", done.stdout
    assert int(counted["pass"]) >= 23


def test_the_page_serves_this_very_client():
    own = {f"turnscore/{path.name}": path.read_bytes() for path in (FOLDER / "src").glob("*.js")}
    assert {name: file.content for name, file in read_page().items() if name.startswith("turnscore/")} == own


def test_the_package_has_the_projects_version_and_types_for_every_name():
    package = json.loads((FOLDER / "package.json").read_text())
    assert package["version"] == version("turnscore-client")
    assert all((FOLDER / path).exists() for path in (*package["exports"]["."].values(), *package["files"]))
    exported = re.findall(r"^export \{ (.+) \} from", (FOLDER / "src" / "turnscore.js").read_text(), re.MULTILINE)
    typed = re.findall(r"^export class (\w+)", (FOLDER / "src" / "turnscore.d.ts").read_text(), re.MULTILINE)
    assert sorted(", ".join(exported).split(", ")) == sorted(typed)
