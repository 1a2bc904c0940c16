"""LangChain and LangGraph, the real packages, with a fake model: the middleware, its gate, and the callbacks."""

from typing import Any

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, BAD, GOOD, Patience, Service

pytest.importorskip("langchain", reason="LangChain is not installed: make integrations")

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from turnscore_client.integrations import GateEvent, QualityGate
from turnscore_client.integrations.langchain_middleware import TurnScoreCallback, TurnScoreMiddleware

CONFIG: Any = {"configurable": {"thread_id": "chat 7"}}


class FakeModel(GenericFakeChatModel):
    """Says what it was given, and takes tools."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


@tool
def find_landlady() -> str:
    """Where she is."""
    return "grimsby"


def agent(middleware: TurnScoreMiddleware, *answers: str | AIMessage) -> Any:
    model = FakeModel(messages=iter([AIMessage(each) if isinstance(each, str) else each for each in answers]))
    return create_agent(
        model, tools=[find_landlady], middleware=[middleware], system_prompt="you are a detective",
        checkpointer=InMemorySaver(),
    )  # fmt: skip


def last(state: dict[str, Any]) -> str:
    return state["messages"][-1].text


ASK = {"messages": [HumanMessage(ASKED)]}
CALLS_A_TOOL = AIMessage("let me look.", tool_calls=[{"name": "find_landlady", "args": {}, "id": "1"}])


async def test_an_agent_s_answer_is_scored_with_what_was_asked(service: Service):
    middleware = TurnScoreMiddleware(**service.options())
    state = await agent(middleware, CALLS_A_TOOL, ANSWERED).ainvoke(ASK, CONFIG)
    assert last(state) == ANSWERED
    await until(lambda: service.told, 30)
    [body] = service.asked
    assert body["context"] == [{"speaker": "user", "text": ASKED}]
    assert body["response"] == f"let me look. {ANSWERED}"  # the texts around a call of tools are one turn
    assert service.told[0].tag.session_id == "chat 7"


async def test_a_low_answer_makes_the_model_answer_again(service: Service):
    gate = QualityGate("ask_again", url=service.url, deadline_seconds=30)
    middleware = TurnScoreMiddleware(gate=gate, **service.options())
    state = await agent(middleware, BAD, GOOD).ainvoke(ASK, CONFIG)
    assert [message.text for message in state["messages"]] == [ASKED, GOOD]
    assert last(agent(middleware, BAD, GOOD).invoke(ASK, CONFIG)) == GOOD
    assert last(await agent(middleware, ANSWERED, GOOD).ainvoke(ASK, CONFIG)) == ANSWERED
    assert (gate.low, gate.passed) == (2, 1)
    assert last(await agent(middleware, CALLS_A_TOOL, ANSWERED).ainvoke(ASK, CONFIG)) == ANSWERED
    assert (gate.low, gate.passed) == (2, 2), "a call of tools passes no gate"
    gate.close()


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_stronger_model_answers_in_its_place(service: Service, monkeypatch: pytest.MonkeyPatch, is_named: bool):
    strong = FakeModel(messages=iter([AIMessage(GOOD), AIMessage(GOOD)]))
    monkeypatch.setattr("turnscore_client.integrations.langchain_middleware.init_chat_model", {"strong": strong}.get)
    gate = QualityGate(
        "fallback_model", fallback_model="strong" if is_named else strong, url=service.url, deadline_seconds=30
    )
    middleware = TurnScoreMiddleware(gate=gate, **service.options())
    assert last(await agent(middleware, BAD).ainvoke(ASK, CONFIG)) == GOOD
    assert last(agent(middleware, BAD).invoke(ASK, CONFIG)) == GOOD
    gate.close()


async def test_a_message_is_said_in_its_place_in_the_agent_s_conversation(service: Service):
    told: list[GateEvent] = []
    gate = QualityGate("hand_over", hand_over=lambda event: told.append(event) or "one moment", url=service.url)
    middleware = TurnScoreMiddleware(gate=gate, **service.options())
    assert last(await agent(middleware, BAD).ainvoke(ASK, CONFIG)) == "one moment"
    assert last(agent(middleware, BAD).invoke(ASK, CONFIG)) == "one moment"
    assert [event.conversation for event in told] == ["chat 7", "chat 7"]
    assert told[0].messages == [{"role": "user", "content": ASKED}]
    gate.close()


async def test_an_unwell_service_costs_the_agent_nothing(unwell: Service, patience: Patience):
    middleware = TurnScoreMiddleware(**unwell.options())
    with patience:
        assert last(await agent(middleware, ANSWERED).ainvoke(ASK, CONFIG)) == ANSWERED
    assert patience.seconds < 3
    middleware.background.close(0)


def graph(*answers: AIMessage) -> Any:
    model = FakeModel(messages=iter(answers))

    async def answer(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    built = StateGraph(MessagesState)
    built.add_node("answer", answer)
    built.add_edge(START, "answer")
    built.add_edge("answer", END)
    return built.compile(checkpointer=InMemorySaver())


async def test_a_plain_graph_s_answers_are_scored_by_callbacks(service: Service):
    callback = TurnScoreCallback(**service.options())
    config = {**CONFIG, "callbacks": [callback]}
    chat = graph(AIMessage(ANSWERED), CALLS_A_TOOL, AIMessage(GOOD))
    assert last(await chat.ainvoke(ASK, config)) == ANSWERED
    await chat.ainvoke({"messages": [HumanMessage("and?")]}, config)
    await chat.ainvoke({"messages": [HumanMessage("so?")]}, config)
    await until(lambda: len(service.told) == 2, 30)
    first, second = sorted(service.asked, key=lambda body: len(body["context"]))
    assert (first["context"], first["response"]) == ([{"speaker": "user", "text": ASKED}], ANSWERED)
    assert second["response"] == GOOD
    assert {scored.tag.session_id for scored in service.told} == {"chat 7"}
    assert not callback._asked
