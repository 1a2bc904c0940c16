"""LiveKit Agents, the real package: a session without audio, with a fake model."""

from typing import Any

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, Patience, Service

pytest.importorskip("livekit.agents", reason="LiveKit Agents is not installed: make integrations")

from livekit.agents import Agent, AgentSession, llm
from turnscore_client.integrations.livekit_listener import listen


class FakeModel(llm.LLM):
    """Says the same again and again."""

    def chat(self, *, chat_ctx: Any, tools: Any = None, conn_options: Any = None, **_: Any) -> llm.LLMStream:
        return Saying(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class Saying(llm.LLMStream):
    async def _run(self) -> None:
        delta = llm.ChoiceDelta(role="assistant", content=ANSWERED)
        self._event_ch.send_nowait(llm.ChatChunk(id="1", delta=delta))


async def talk(session: AgentSession, *asked: str) -> list[str]:
    """What the session holds after these were said."""
    await session.start(Agent(instructions="you are a detective"))
    for text in asked:
        await session.run(user_input=text)
    said = [item.text_content for item in session.history.items if item.type == "message"]
    await session.aclose()
    return said


async def test_what_the_agent_said_is_scored_in_its_session(service: Service):
    session = AgentSession(llm=FakeModel())
    listen(session, session_id="room 7", **service.options(concurrency=1))
    assert await talk(session, ASKED, "and then?") == [ASKED, ANSWERED, "and then?", ANSWERED]
    await until(lambda: len(service.told) == 2, 30)
    assert [len(body["context"]) for body in service.asked] == [1, 3]
    assert service.asked[0]["context"] == [{"speaker": "user", "text": ASKED}]
    assert {body["response"] for body in service.asked} == {ANSWERED}
    assert {scored.tag.session_id for scored in service.told} == {"room 7"}
    assert all(scored.tag.span_id for scored in service.told)


async def test_what_the_user_interrupted_is_not_scored(service: Service):
    from livekit.agents import ConversationItemAddedEvent

    session = AgentSession(llm=FakeModel())
    listen(session, **service.options())
    for text, is_interrupted in (("she sn", True), (ANSWERED, False)):
        item = llm.ChatMessage(role="assistant", content=[text], interrupted=is_interrupted)
        session.emit("conversation_item_added", ConversationItemAddedEvent(item=item))
    await until(lambda: service.told, 30)
    assert [body["response"] for body in service.asked] == [ANSWERED]


async def test_an_unwell_service_costs_the_session_nothing(unwell: Service, patience: Patience):
    session = AgentSession(llm=FakeModel())
    watch = listen(session, **unwell.options())
    with patience:
        assert await talk(session, ASKED) == [ASKED, ANSWERED]
    assert patience.seconds < 4
    watch.close(0)
