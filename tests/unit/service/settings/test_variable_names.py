"""A `TURNSCORE_*` variable that nobody reads stops the start; those of clients and of a cluster do not."""

import re
import subprocess
from pathlib import Path

import pytest
from turnscore_client import _defaults
from turnscore_service.settings.service import CLIENT_VARIABLES, Settings, read_settings, refusal_of_unknown

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TURNSCORE_AUTH_KEYS_FILE", "TURNSCORE_AUTH__KEYS_FILE"),
        ("TURNSCORE_WORKER", "TURNSCORE_WORKERS"),
        ("TURNSCORE_LIMITS__MAX_TURN", "TURNSCORE_LIMITS__MAX_TURNS"),
        ("TURNSCORE_CACHE__URI", "TURNSCORE_CACHE__URL"),
        ("TURNSCORE_GRPC_PORT", "TURNSCORE_GRPC__PORT"),
        ("TURNSCORE_WORKERS__MORE", "TURNSCORE_WORKERS"),
        ("turnscore_api_keys", "TURNSCORE_API_KEY"),
    ],
)
def test_a_mistyped_variable_stops_the_start_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, name: str, near: str
):
    monkeypatch.setenv(name, "secret")
    with pytest.raises(SystemExit) as ended:
        read_settings()
    assert str(ended.value) == f"{name}: there is no such setting; did you mean {near}?"


def test_one_that_resembles_nothing_is_refused_too_and_each_has_its_line():
    refusal = refusal_of_unknown(Settings, {"TURNSCORE_QQQQQQQ": "secret", "TURNSCORE_WORKER": "2", "OTHER": "x"})
    assert refusal.splitlines() == [
        "TURNSCORE_QQQQQQQ: there is no such setting",
        "TURNSCORE_WORKER: there is no such setting; did you mean TURNSCORE_WORKERS?",
    ]


@pytest.mark.parametrize(
    "environment",
    [
        {"TURNSCORE_WORKERS": "2", "turnscore_log_level": "INFO", "TURNSCORE_GRPC__PORT": "1", "TURNSCORE_GRPC": "{}"},
        {"TURNSCORE_OPTIONS__FED__LOSS": "x", "TURNSCORE_CACHE__SCORER_TTL_SECONDS__FED": "1"},
        dict.fromkeys(CLIENT_VARIABLES, "x"),
        {"TURNSCORE_SERVICE_HOST": "10.0.0.1", "TURNSCORE_SERVICE_PORT": "3000", "TURNSCORE_SERVICE_PORT_HTTP": "3000"},
        {"TURNSCORE_PORT": "tcp://10.0.0.1:3000", "TURNSCORE_PORT_3000_TCP": "tcp://10.0.0.1:3000"},
        {"TURNSCORE_PORT_3000_TCP_ADDR": "10.0.0.1", "TURNSCORE_REDIS_PORT": "tcp://10.0.0.2:6379"},
    ],
)
def test_settings_the_clients_and_a_clusters_variables_are_known(environment: dict[str, str]):
    assert refusal_of_unknown(Settings, environment) == ""


def test_the_clients_variables_are_those_that_the_client_reads():
    assert {value for name, value in vars(_defaults).items() if name.endswith("_VARIABLE")} == CLIENT_VARIABLES


def test_every_variable_that_a_file_of_ours_sets_or_names_is_known():
    patterns = ["Makefile", "Dockerfile", "bentofile.yaml", "README.md", "docs/*.md", "*.py", "*.yml", "*.yaml"]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split() if not name.startswith("tests/") and name != "CHANGELOG.md"]
    named = {name for file in files for name in re.findall(r"TURNSCORE_[A-Z][A-Z_]*[A-Z]\b", (ROOT / file).read_text())}
    assert len(named) > 50
    assert refusal_of_unknown(Settings, dict.fromkeys(named, "x")) == ""
