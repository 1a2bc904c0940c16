"""The commands of a study: links, progress, export, deletion; and addresses that would give links away."""

import json
from importlib.resources import files

import pytest
from support.files import invoke
from turnscore_assessment.commands.main import study as app
from turnscore_assessment.study import server
from turnscore_assessment.study.server import BadAddressError, list_origins

DEMO = files("turnscore_assessment.study") / "demo_files"


@pytest.fixture
def plan(tmp_path):
    for name in ("STUDY.toml", "corpus.jsonl"):
        (tmp_path / name).write_text(DEMO.joinpath(name).read_text(encoding="utf-8"))
    return tmp_path / "STUDY.toml"


def test_links_are_printed_once_and_progress_shows_codes_alone(plan):
    made = invoke(app, ["invite", str(plan), "--workers", "2", "--public-url", "https://study.test"])
    links = made.output.split()
    assert len(links) == 2
    assert all(link.startswith("https://study.test/#") for link in links)
    progress = invoke(app, ["progress", str(plan)]).output
    for link in links:
        code, secret = link.partition("#")[2].split(".")
        assert f"{code}  -         0 of 0 rated" in progress
        assert secret not in progress
    done = invoke(app, ["delete", str(plan), "--worker", code])
    assert done.output == f"deleted the texts and ratings of {code}\n"
    assert f"{code}  left" in invoke(app, ["progress", str(plan)]).output


@pytest.mark.parametrize("command", ["serve", "invite"])
def test_where_others_can_reach_it_the_address_must_be_said(plan, command, monkeypatch):
    monkeypatch.setattr(server, "run_server", lambda *_: None)
    before = sorted(plan.parent.iterdir())
    refused = invoke(app, [command, str(plan), "--host", "0.0.0.0"], code=1)
    assert "--public-url must say under which address" in refused.stderr
    assert sorted(plan.parent.iterdir()) == before
    for url in ("study.test", "https://study.test/path", "https://me@study.test", "https://study.test/#x"):
        with pytest.raises(BadAddressError, match="--public-url"):
            list_origins("127.0.0.1", 8200, url)


def test_simulated_raters_fill_a_study_whose_report_says_why_each_worker_counts(tmp_path):
    folder = tmp_path / "demo"
    invoke(app, ["demo", str(folder), "--raters", "4"])
    asked = ["report", str(folder / "STUDY.toml"), "--output", str(tmp_path / "out"), "--rounds", "20"]
    printed = invoke(app, asked).output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [worker["verdict"] for worker in report["workers"]].count("passed") == 3
    assert printed.count("rates the degraded system lower") == 3
    assert [each["system"] for each in report["raw"]] == ["companion", "brief", "echo", "degraded"]
    assert report["systems"][0]["scores"]["overall"]["low"] is None  # Four workers are too few for an interval.
    assert 1 < report["effort"]["passed"]["minutes_per_dialogue"] < 10
