"""The diagnosis of made-up machines and of a service's surroundings: silent where all is well, else with a remedy."""

import json
import os
import re
import shutil
import socket

import pytest
from support.fakes import CPU_BUILD, FakeMachine
from support.processes import running_redis
from turnscore_client._command.registry import app
from turnscore_models.bundle import starter_bundles
from turnscore_service._patches import bentoml_metrics
from turnscore_service.lifecycle import doctor
from turnscore_service.lifecycle.doctor import Surroundings, check_service
from turnscore_service.settings.service import Settings
from typer.testing import CliRunner

STARTER = f"{starter_bundles()[0]}/"


def run(monkeypatch, machine, *options):
    """What it says of that machine, and of one bundle where no other is named."""
    monkeypatch.setattr(doctor, "check_service", lambda *_: [])  # of the machine that the tests run on
    monkeypatch.setattr(doctor, "Machine", lambda: machine)
    named = os.environ.get("TURNSCORE_MODELS", STARTER)
    return CliRunner().invoke(app, ["doctor", *options], env={"COLUMNS": "160", "TURNSCORE_MODELS": named})


def read(monkeypatch, machine, *options):
    return json.loads(run(monkeypatch, machine, "--json", *options).stdout)


def test_a_machine_without_a_gpu_serves_on_its_cpu(monkeypatch):
    result = run(monkeypatch, FakeMachine(CPU_BUILD, driver="libcuda.so.1: cannot open"))
    assert result.exit_code == 0, result.output
    assert re.search(r"NVIDIA driver +none", result.output)
    assert re.search(r"engagement:\S+ +cpu-int8 +cpu +CPUExecutionProvider", result.output)
    assert result.output.endswith("ready to serve\n")


def test_cuda_that_cannot_be_used_is_told_with_its_fix_and_ends_with_status_1(monkeypatch):
    result = run(monkeypatch, FakeMachine(missing="libcudnn.so.9"), "--device", "cuda")
    assert result.exit_code == 1
    assert "cuda lacks" in result.output
    assert "problem CUDAExecutionProvider needs libcudnn.so.9, which cannot be loaded: install" in result.output
    assert result.output.endswith("the service would not be ready\n")


def test_a_gpu_left_unused_is_a_warning(monkeypatch):
    found = read(monkeypatch, FakeMachine(CPU_BUILD))
    assert found["can_serve"]
    assert [(each["is_fatal"], each["text"][:51]) for each in found["problems"]] == [
        (False, "there is a GPU, but the CPU would be used: the inst")
    ]


def test_it_loads_what_would_be_served_and_tells_a_damaged_bundle(monkeypatch, tmp_path):
    assert run(monkeypatch, FakeMachine(CPU_BUILD), "--load").exit_code == 0
    shutil.copytree(STARTER, tmp_path / "bundle")
    (tmp_path / "bundle" / "tokenizer.json").write_text("{}")
    monkeypatch.setenv("TURNSCORE_MODELS", f"{tmp_path}/bundle")
    result = run(monkeypatch, FakeMachine(CPU_BUILD))
    assert result.exit_code == 1
    assert "tokenizer.json has SHA-256" in result.output


@pytest.mark.parametrize("setting", ["SHADOW", "SPLIT"])
def test_candidate_versions_are_looked_at_too(setting, monkeypatch):
    monkeypatch.setenv(f"TURNSCORE_{setting}", "./nowhere/engagement=0.1")
    found = read(monkeypatch, FakeMachine(CPU_BUILD))
    assert not found["can_serve"]
    assert "nowhere/engagement" in found["scorers"][-1]["problem"]


BUNDLE = starter_bundles()[0]
GOOD = {
    "descriptors": 65_536, "memory_bytes": 1 << 40, "now": 2e9, "installed_at": 1e9, "clock_step": 1e-9,
    "refuse_port": lambda host, port: None,
}  # fmt: skip


def find(settings=None, graph_bytes=1 << 20, **around):
    checked = Settings.model_validate(settings or {})
    found = check_service(checked, graph_bytes, Surroundings(**{**GOOD, **around}))
    return [(each.text, each.is_fatal) for each in found]


def test_nothing_is_said_of_a_service_that_has_all_it_needs():
    assert find() == []
    assert find({"grpc": {"enabled": False}}, descriptors=-1) == []


@pytest.mark.parametrize(
    ("settings", "around", "words", "is_fatal"),
    [
        ({"workers": 64}, {"memory_bytes": 1 << 30}, ("64 workers", "1,073,741,824", "lower TURNSCORE_WORKERS"), False),
        ({}, {"descriptors": 1024}, ("1,024 files", "2,256", "ulimit -n"), False),
        ({}, {"now": 1e8}, ("earlier", "NTP"), False),
        ({}, {"clock_step": 0.01}, ("10 ms", "clock source"), False),
        ({"limits": {"max_text_chars": 2_000_000}, "conversations": {"max_bytes": 3_000_000}}, {},
         ("TURNSCORE_LIMITS__MAX_BODY_BYTES", "TURNSCORE_LIMITS__MAX_TEXT_CHARS"), False),
        ({"admission": {"max_items": 100}}, {}, ("ADMISSION__MAX_ITEMS is 100", "MAX_ITEMS allows (256)"), False),
    ],
)  # fmt: skip
def test_a_fault_is_one_sentence_with_its_remedy(settings, around, words, is_fatal):
    [(text, fatal)] = find(settings, **around)
    assert fatal is is_fatal
    assert [each for each in words if each not in text] == []


def test_a_port_that_is_taken_is_a_warning_and_one_that_cannot_be_had_is_fatal():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"http": {"port": port}, "grpc": {"enabled": False}}
        [(text, fatal)] = find(settings, refuse_port=Surroundings().refuse_port)
    assert (f"port {port}" in text, "already running" in text, fatal) == (True, True, False)
    nowhere = {"http": {"host": "192.0.2.1"}, "grpc": {"enabled": False}}
    [(text, fatal)] = find(nowhere, refuse_port=Surroundings().refuse_port)
    assert ("TURNSCORE_HTTP__HOST" in text, fatal) == (True, True)


def test_a_cache_that_answers_is_well_and_one_that_wants_a_password_says_so(tmp_path):
    with running_redis(tmp_path) as server:
        assert find({"cache": {"url": server.url, "timeout_ms": 5000}}) == []
        server.configure(requirepass="secret")
        [(text, fatal)] = find({"cache": {"url": server.url}})
    assert ("(forbidden)" in text, "TURNSCORE_CACHE__PASSWORD" in text, fatal) == (True, True, False)


def test_a_cache_that_does_not_answer_is_named_without_its_password():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    [(text, fatal)] = find({"cache": {"url": f"redis://:verysecret@127.0.0.1:{port}"}})
    assert ("(connection)" in text, "TURNSCORE_CACHE__URL" in text, fatal) == (True, True, False)
    assert "verysecret" not in text


@pytest.mark.parametrize(
    ("field", "given"), [("default_scorers", ["qualty"]), ("thresholds", {"qualty": 0.5}), ("models", ["qualty:1.0.0"])]
)
def test_a_key_that_names_what_would_not_be_loaded_is_fatal(field, given):
    keys = {"shop": {"sha256": "0" * 64, field: given}}
    [(text, fatal)] = find({"auth": {"keys": keys}})
    assert (f"shop.{field}: qualty" in text, "did you mean quality" in text, fatal) == (True, True, True)
    assert find({"models": "./nowhere", "auth": {"keys": keys}}) == []  # said with the bundles


UNSERVED = [
    ("thresholds", {"qualty": 0.9}, r"qualty is not among engagement, fed, .*; did you mean quality\?"),
    ("default_scorers", ["qualty"], r"qualty is not among .*; did you mean quality\?"),
    ("default_scorers", ["quality", "reaction"], "reaction scores user turns: ask it by name"),
    ("options", {"fd": {}}, r"fd is not among .*; did you mean fed\?"),
    ("combinations", {"sum": {"weights": {"qualty": 1}}}, r"qualty is not among .*; did you mean quality\?"),
    ("split", f"{BUNDLE}/=0.5", rf"{BUNDLE.name}:\d.* is what is served; name another version, .*"),
]


@pytest.mark.parametrize(("setting", "given", "told"), UNSERVED)
def test_a_setting_that_names_what_would_not_be_served_is_fatal(setting, given, told):
    [(text, fatal)] = find({setting: given})
    assert re.fullmatch(f"TURNSCORE_{setting.upper()}: {told}", text)
    assert fatal


def test_names_of_scorers_and_combinations_are_known_where_they_are_of_use():
    combinations = {"sum": {"weights": {"quality": 1}}}
    assert find({"combinations": combinations, "default_scorers": ["sum", "fed"], "thresholds": {"fed": 0.5}}) == []
    [(text, _)] = find({"combinations": combinations, "thresholds": {"sum": 0.5}})  # has its own
    assert text.startswith("TURNSCORE_THRESHOLDS: sum is not among")


def test_unreadable_keys_and_a_full_disk_are_fatal(tmp_path, monkeypatch):
    keys = tmp_path / "keys.toml"
    keys.write_text("[shop\n")
    monkeypatch.setattr(bentoml_metrics, "LEAST_FREE_BYTES", 1 << 60)
    found = find({"auth": {"keys_file": str(keys)}})
    assert [fatal for _, fatal in found] == [True, True]
    assert "BENTOML_HOME" in found[0][0]
    assert str(keys) in found[1][0]
    monkeypatch.undo()
    keys.unlink()
    [(text, fatal)] = find({"auth": {"keys_file": str(keys)}})
    assert (f"{keys}: No such file or directory" in text, fatal) == (True, True)
