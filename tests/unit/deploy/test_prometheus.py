"""A real Prometheus takes the rules, scrapes a service's series, and answers turnscore drift."""

import json
import shutil
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from prometheus_client import start_http_server
from support import plain_http
from turnscore_assessment.drift.sources import collect, query_prometheus, read_service
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import Deadline, Item, Outcome
from turnscore_load.machine import free_port
from turnscore_load.processes import Process, started
from turnscore_service.metrics import write_out
from turnscore_service.scheduling.score_metrics import ScoreMetrics
from turnscore_wire import Score, TokenCount

RULES = Path(__file__).parents[3] / "deploy" / "observability" / "rules" / "turnscore.yml"


def say(model, turns):
    """Turns of dialogues of one turn each, whose percentiles are spread evenly."""
    said = ScoreMetrics({})
    tokens = TokenCount(used=3, dropped=0, truncated=False)
    for place in range(turns):
        item = Item(turn=TurnToScore([], ""), asked={"combined": None}, deadline=Deadline(0))
        known = {"value": 0.0, "details": {}, "model": model, "tokens": tokens, "cached": True}
        said.count(item, Outcome(scores={"combined": Score(percentile=100 * (place + 0.5) / turns, **known)}))
    write_out()


def wait_for(condition):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except httpx.HTTPError:  # not yet listening, or not yet ready
            pass
        time.sleep(0.2)  # polling another process: there is nothing to wait on
    raise AssertionError("it did not come")


@pytest.fixture
def prometheus(tmp_path):
    """The addresses of a Prometheus with the rules, and of the series that it scrapes four times a second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    server, thread = start_http_server(0, addr="127.0.0.1")
    scraped, port = f"127.0.0.1:{server.server_port}", free_port()
    target = {"job_name": "bot", "static_configs": [{"targets": [scraped]}]}
    config = {"global": {"scrape_interval": "250ms", "evaluation_interval": "1s"}, "scrape_configs": [target]}
    (tmp_path / "prometheus.yml").write_text(json.dumps({**config, "rule_files": [str(RULES)]}))
    options = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    command = [program, *options, f"--web.listen-address=127.0.0.1:{port}"]
    with started(Process(command, tmp_path, port=port, ready="/-/ready")) as process:
        yield process.url, f"http://{scraped}"
    server.shutdown()
    server.server_close()
    thread.join(60)


def test_a_real_prometheus_takes_the_rules_and_answers_the_command(prometheus):
    url, scraped = prometheus
    model = f"prometheus-test:{uuid4().hex}"  # the process keeps counting where the test is run again
    say(model, 50)  # so that the series exist before they grow
    query = {"query": f'turnscore_live_turns_total{{model="{model}", label="none"}}'}
    wait_for(lambda: plain_http.get(f"{url}/api/v1/query", params=query).json()["data"]["result"])
    say(model, 100)
    [of_service] = [each for each in collect(read_service(scraped)) if each.model == model]
    assert (of_service.turns, of_service.dialogues, of_service.bins) == (150, 150, [15.0] * 10)

    def grown_evenly():  # a scrape may have come while the turns were said
        found = [each for each in collect(query_prometheus(url, "1m")) if each.model == model and each.turns]
        return bool(found) and all(each.bins == pytest.approx([each.turns / 10] * 10) for each in found)

    wait_for(grown_evenly)
    groups = plain_http.get(f"{url}/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == RULES.read_text().count("expr:")
    assert [rule for rule in rules if rule.get("lastError")] == []
