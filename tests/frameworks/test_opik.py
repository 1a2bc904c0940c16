"""Opik's own client, against a server that keeps what it is sent."""

import pytest
from support.framework_service import ANSWERED, ASKED, Service, capturing
from support.studies import AGGREGATES, scored
from turnscore_client.integrations import TurnIds

opik = pytest.importorskip("opik", reason="Opik is not installed: make integrations")

from turnscore_client.writers import dialogue_entries  # noqa: E402
from turnscore_client.writers.opik_metric import TurnScoreThreadMetric  # noqa: E402
from turnscore_client.writers.opik_writer import OpikWriter  # noqa: E402

SPAN_ID, TRACE_ID = "0198f3a1-0000-7000-8000-000000000001", "0198f3a1-0000-7000-8000-000000000002"


def test_scores_of_turns_and_threads_arrive_with_their_ids():
    with capturing() as server:
        client = opik.Opik(host=f"{server.url}/api", workspace="default", project_name="chatbot")
        writer = OpikWriter(client)
        writer(scored(TurnIds(trace_id=TRACE_ID, span_id=SPAN_ID)))
        writer(scored(TurnIds(trace_id=TRACE_ID)))
        for entry in dialogue_entries(AGGREGATES, TurnIds(session_id="chat 7")):
            writer.write(entry)
        writer.close()
        client.end()
    folder = "/api/v1/private"
    [[of_trace], [of_span]] = [
        [score for body in server.bodies("PUT", f"{folder}/{kind}/feedback-scores") for score in body["scores"]]
        for kind in ("traces", "spans")
    ]
    [[of_thread]] = [body["scores"] for body in server.bodies("PUT", f"{folder}/traces/threads/feedback-scores")]
    assert (of_span["id"], of_span["name"], of_span["value"]) == (SPAN_ID, "turnscore.quality", 0.25)
    assert (of_span["reason"], of_span["category_name"]) == ("12 of 100 reference turns score lower", "low")
    assert (of_trace["id"], of_trace["value"]) == (TRACE_ID, 0.25)
    assert (of_thread["thread_id"], of_thread["value"]) == ("chat 7", 0.5)


def test_a_thread_is_judged_by_its_dialogue(service: Service):
    metric = TurnScoreThreadMetric(url=service.url, track=False)
    result = metric.score([{"role": "user", "content": ASKED}, {"role": "assistant", "content": ANSWERED}])
    assert (result.name, result.value, result.scoring_failed) == ("turnscore.quality", 0.7, False)
    assert service.asked[0]["turns"][1] == {"speaker": "system", "text": ANSWERED}
    assert metric.score([{"role": "user", "content": ASKED}]).scoring_failed
