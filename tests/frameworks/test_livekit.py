"""LiveKit Agents, the real package: sessions without audio, with fake models."""

import asyncio
from typing import Any

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, BAD, GOOD, Patience, Service

pytest.importorskip("livekit.agents", reason="LiveKit Agents is not installed: make integrations")

from livekit.agents import Agent, AgentSession, function_tool, llm
from livekit.agents.evals import JudgeGroup
from turnscore_client.integrations import GateEvent, QualityGate
from turnscore_client.integrations.livekit_listener import GatedAgent, TurnScoreJudge, listen

CALL = llm.FunctionToolCall(name="find_landlady", arguments="{}", call_id="1")


class FakeModel(llm.LLM):
    """Says its answers one by one, word by word, and the last again and again; a call of a tool is one, too."""

    def __init__(self, *answers: Any, until: asyncio.Event | None = None) -> None:
        super().__init__()
        self.answers, self.until, self.asked = list(answers or [ANSWERED]), until, 0

    def chat(self, *, chat_ctx: Any, tools: Any = None, conn_options: Any = None, **_: Any) -> llm.LLMStream:
        self.asked += 1
        return Saying(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class Saying(llm.LLMStream):
    async def _run(self) -> None:
        model: Any = self._llm
        answer = model.answers.pop(0) if len(model.answers) > 1 else model.answers[0]
        words = answer.split(" ") if isinstance(answer, str) else [answer]
        for place, word in enumerate(words):
            if place == 1 and model.until is not None:
                await model.until.wait()
            said = {"content": f" {word}" if place else word} if isinstance(word, str) else {"tool_calls": [word]}
            self._event_ch.send_nowait(llm.ChatChunk(id="1", delta=llm.ChoiceDelta(role="assistant", **said)))


async def talk(session: AgentSession, *asked: str, agent: Agent | None = None) -> list[str]:
    """What the session holds after these were said."""
    await session.start(agent or Agent(instructions="you are a detective"))
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


def gated(gate: QualityGate, **given: Any) -> GatedAgent:
    return GatedAgent(instructions="you are a detective", gate=gate, **given)


@pytest.mark.parametrize(
    ("given", "weak", "strong", "said"),
    [
        ({"on_low": "ask_again"}, [ANSWERED], [GOOD], ANSWERED),
        ({"on_low": "ask_again"}, [BAD, ANSWERED], [GOOD], ANSWERED),
        ({"on_low": "fallback_model"}, [BAD], [GOOD], GOOD),
        ({"on_low": "fallback_model"}, [BAD], [CALL, GOOD], BAD),  # a call is no reply
        ({"on_low": "hand_over", "hand_over": "one moment"}, [BAD], [GOOD], "one moment"),
    ],
)
async def test_a_low_reply_is_replaced_before_it_is_spoken(service: Service, given, weak, strong, said):
    gate = QualityGate(url=service.url, fallback_model=FakeModel(*strong), deadline_seconds=30, **given)
    assert await talk(AgentSession(llm=FakeModel(*weak)), ASKED, agent=gated(gate)) == [ASKED, said]
    assert service.asked[0]["context"] == [{"speaker": "user", "text": ASKED}]
    gate.close()


async def test_a_model_of_livekit_inference_is_asked_by_its_name(service: Service, monkeypatch: pytest.MonkeyPatch):
    named = {"strong": FakeModel(GOOD)}
    monkeypatch.setattr("turnscore_client.integrations.livekit_listener.inference.LLM", named.get)
    gate = QualityGate("fallback_model", url=service.url, fallback_model="strong", deadline_seconds=30)
    assert await talk(AgentSession(llm=FakeModel(BAD)), ASKED, agent=gated(gate)) == [ASKED, GOOD]
    gate.close()


async def test_a_call_of_tools_passes_and_the_answer_to_it_is_gated(service: Service):
    @function_tool
    async def find_landlady() -> str:
        """Where she is."""
        return "grimsby"

    told: list[GateEvent] = []
    gate = QualityGate("hand_over", hand_over=lambda event: told.append(event) or "one moment", url=service.url)
    agent = gated(gate, session_id="room 7", tools=[find_landlady])
    assert await talk(AgentSession(llm=FakeModel(CALL, BAD)), ASKED, agent=agent) == [ASKED, "one moment"]
    [event] = told
    assert (event.reply, event.conversation, event.messages) == (BAD, "room 7", [{"role": "user", "content": ASKED}])
    gate.close()


async def test_a_reply_that_is_longer_in_coming_than_the_deadline_is_spoken_as_it_comes(service: Service):
    ended, spoken = asyncio.Event(), asyncio.Event()

    class Listening(GatedAgent):
        async def transcription_node(self, text: Any, model_settings: Any) -> Any:
            async for word in text:
                spoken.set()
                yield word

    gate = QualityGate("ask_again", url=service.url, deadline_seconds=0.2)
    agent = Listening(instructions="you are a detective", gate=gate)
    talking = asyncio.create_task(talk(AgentSession(llm=FakeModel(BAD, until=ended)), ASKED, agent=agent))
    await asyncio.wait_for(spoken.wait(), 30)
    ended.set()
    assert await talking == [ASKED, BAD]
    assert service.asked == []
    gate.close()


@pytest.mark.parametrize(
    ("said", "verdict", "told"),
    [
        ([ANSWERED, GOOD], "pass", "0 of the agent's 2"),
        ([BAD], "fail", "1 of the agent's 1 labelled turns are low: 1"),
        ([GOOD, BAD, *[GOOD] * 8], "maybe", "1 of the agent's 10 labelled turns are low: 2"),
        ([GOOD, BAD, BAD, BAD, *[GOOD] * 6], "fail", "3 of the agent's 10 labelled turns are low: 2, 3, 4"),
    ],
)
async def test_a_group_of_judges_has_the_service_judge_a_session(service: Service, said, verdict, told):
    session = llm.ChatContext.empty()
    for text in said:
        session.add_message(role="user", content=ASKED)
        session.add_message(role="assistant", content=text)
    result = await JudgeGroup(llm=FakeModel(), judges=[TurnScoreJudge(url=service.url)]).evaluate(session)
    judgment = result.judgments["turnscore"]
    assert judgment.verdict == verdict
    assert told in judgment.reasoning


async def test_a_session_without_a_label_is_uncertain(service: Service):
    service.mock.thresholds.clear()
    session = llm.ChatContext.empty()
    session.add_message(role="assistant", content=BAD)
    result = await JudgeGroup(llm=FakeModel(), judges=[TurnScoreJudge(url=service.url)]).evaluate(session)
    assert result.judgments["turnscore"].uncertain
