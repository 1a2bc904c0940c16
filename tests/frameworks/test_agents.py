"""Microsoft's Agents SDK, the real package, with an adapter of ours in place of a channel."""

from typing import Any

import pytest
from support.conditions import until
from support.framework_service import ANSWERED, ASKED, BAD, GOOD, Patience, Service

pytest.importorskip(
    "microsoft_agents.hosting.core", reason="the Microsoft Agents SDK is not installed: make integrations"
)

from microsoft_agents.activity import Activity, ChannelAccount, ConversationAccount, ResourceResponse
from microsoft_agents.hosting.core import ChannelAdapter, TurnContext
from turnscore_client.integrations import GateEvent, QualityGate
from turnscore_client.integrations.agents_middleware import TurnScoreMiddleware


class Channel(ChannelAdapter):
    """Keeps what the agent sends."""

    def __init__(self, middleware: TurnScoreMiddleware) -> None:
        super().__init__()
        self.use(middleware)
        self.sent: list[str] = []

    async def send_activities(self, context: TurnContext, activities: list[Activity]) -> list[ResourceResponse]:
        self.sent += [activity.text for activity in activities if activity.type == "message"]
        return [ResourceResponse(id=f"sent {len(self.sent)}") for _ in activities]

    async def update_activity(self, context: TurnContext, activity: Activity) -> None: ...

    async def delete_activity(self, context: TurnContext, reference: Any) -> None: ...

    async def hear(self, text: str, *answers: str) -> None:
        """One turn of the conversation, in which the agent says these."""
        heard = Activity(
            type="message",
            text=text,
            channel_id="test",
            service_url="https://test",
            conversation=ConversationAccount(id="chat 7"),
            from_property=ChannelAccount(id="user"),
            recipient=ChannelAccount(id="agent"),
        )

        async def agent(context: TurnContext) -> None:
            await context.send_activity(Activity(type="typing"))
            for answer in answers:
                await context.send_activity(answer)

        await self.run_pipeline(TurnContext(self, heard), agent)


async def test_what_the_agent_sends_is_scored_in_its_conversation(service: Service):
    channel = Channel(TurnScoreMiddleware(**service.options(concurrency=1)))
    await channel.hear(ASKED, ANSWERED)
    await channel.hear("and then?", GOOD)
    assert channel.sent == [ANSWERED, GOOD]
    await until(lambda: len(service.told) == 2, 30)
    assert [len(body["context"]) for body in service.asked] == [1, 3]
    assert service.asked[0]["context"] == [{"speaker": "user", "text": ASKED}]
    assert [(scored.tag.span_id, scored.tag.session_id) for scored in service.told] == [
        ("sent 1", "chat 7"),
        ("sent 2", "chat 7"),
    ]


async def test_a_low_message_is_sent_in_other_words(service: Service):
    async def again(event: GateEvent) -> str:
        assert (event.messages[-1]["content"], event.score.value, event.conversation) == (ASKED, 0.1, "chat 7")
        return GOOD

    gate = QualityGate("fallback_model", fallback_model=again, url=service.url)
    channel = Channel(TurnScoreMiddleware(gate=gate, **service.options()))
    await channel.hear(ASKED, BAD, ANSWERED)
    assert channel.sent == [GOOD, ANSWERED]
    gate.close()


@pytest.mark.parametrize("given", [{"on_low": "ask_again"}, {"on_low": "fallback_model", "fallback_model": "strong"}])
def test_the_sdk_knows_no_model(service: Service, given: dict[str, Any]):
    with pytest.raises(ValueError, match="give a function"):
        TurnScoreMiddleware(gate=QualityGate(url=service.url, **given))


async def test_an_unwell_service_costs_the_agent_nothing(unwell: Service, patience: Patience):
    middleware = TurnScoreMiddleware(**unwell.options())
    channel = Channel(middleware)
    with patience:
        await channel.hear(ASKED, ANSWERED)
    assert channel.sent == [ANSWERED]
    assert patience.seconds < 2
    middleware.background.close(0)
