"""LangSmith's own client, against a server that keeps what it is sent."""

import pytest
from support.framework_service import capturing
from support.studies import AGGREGATES, scored
from turnscore_client.integrations import TurnIds

langsmith = pytest.importorskip("langsmith", reason="LangSmith is not installed: make integrations")

from turnscore_client.writers import dialogue_entries  # noqa: E402
from turnscore_client.writers.langsmith_writer import LangSmithWriter  # noqa: E402

RUN = "0198f3a1-0000-7000-8000-000000000001"


def test_feedback_on_turns_and_sessions_arrives_with_its_run():
    with capturing() as server:
        writer = LangSmithWriter(langsmith.Client(api_url=server.url, api_key="key", auto_batch_tracing=False))
        for _ in range(2):
            writer(scored(TurnIds(trace_id=RUN)))
        for entry in dialogue_entries(AGGREGATES, TurnIds(trace_id=RUN, session_id="chat 7")):
            writer.write(entry)
        writer(scored(TurnIds()))
        writer.close()
    turn, again, session = server.bodies("POST", "/feedback")
    assert (turn["run_id"], turn["key"], turn["score"], turn["value"]) == (RUN, "turnscore.quality", 0.25, "low")
    assert (turn["id"], turn["comment"]) == (again["id"], "12 of 100 reference turns score lower")
    assert turn["feedback_source"]["type"] == "model"
    assert turn["feedback_source"]["metadata"]["turnscore.model"] == "quality:1.0.0"
    assert (session["run_id"], session["key"], session["score"]) == (RUN, "turnscore.quality.session", 0.5)
