"""Langfuse's own client, against a server that keeps what it is sent."""

import pytest
from support.framework_service import capturing
from support.studies import AGGREGATES, SPAN, TRACE, scored
from turnscore_client.integrations import TurnIds

langfuse = pytest.importorskip("langfuse", reason="Langfuse is not installed: make integrations")

from turnscore_client.writers import dialogue_entries  # noqa: E402
from turnscore_client.writers.langfuse_writer import LangfuseWriter  # noqa: E402


def test_scores_of_turns_and_sessions_arrive_with_their_ids():
    with capturing(lambda _: {"successes": [], "errors": []}) as server:
        client = langfuse.Langfuse(public_key="pk", secret_key="sk", base_url=server.url)
        writer = LangfuseWriter(client)
        writer(scored(TurnIds(trace_id=TRACE, span_id=SPAN)))
        writer(scored(TurnIds(trace_id=TRACE, span_id=SPAN), 0.75))  # the same turn again
        writer(scored(TurnIds(session_id="chat 7")))  # a turn that no trace has
        for entry in dialogue_entries(AGGREGATES, TurnIds(session_id="chat 7")):
            writer.write(entry)
        writer.close()
        client.shutdown()
    turn, again, session = [entry for body in server.bodies("POST", "/api/public/scores") for entry in body]
    assert (turn["name"], turn["value"], turn["dataType"]) == ("turnscore.quality", 0.25, "NUMERIC")
    assert (turn["traceId"], turn["observationId"]) == (TRACE, SPAN)
    assert (turn["comment"], turn["metadata"]["label"]) == ("12 of 100 reference turns score lower", "low")
    assert turn["metadata"]["turnscore.model"] == "quality:1.0.0"
    assert (again["id"], again["value"]) == (turn["id"], 0.75)  # Langfuse replaces a score with the same id
    assert (session["sessionId"], session["value"], session["metadata"]["turnscore.turns"]) == ("chat 7", 0.5, 2)
    assert "traceId" not in session
