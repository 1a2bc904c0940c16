"""Raters, who tell the chatbots apart by what these say: in a browser, by keyboard and sliders, or by the page's calls.

What a rater thinks depends on its seed alone, not on the way.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
from turnscore_assessment.study.demo import CHATBOTS

INPUTS = (
    "hello there",
    "i went for a walk in the rain",
    "my dog came along",
    "then we cooked soup",
    "i like cooking with friends",
    "do you read books",
    "i study music at school",
    "we travel to the sea in summer",
    "the film last night was long",
    "that was a good day",
)
TASTES: Mapping[str, int] = {"companion": 85, "brief": 55, "echo": 30, "degraded": 5}
"""What an honest rater thinks of each chatbot, from 0 to 100."""

Look = Callable[[Any, str], Awaitable[None]]
"""Called with every page that a rater sees, and its name."""


def recognize(inputs: list[str], replies: list[str]) -> str:
    """The demo chatbot that would have said all this; the degraded one if none of them would."""
    for name, say in CHATBOTS.items():
        if all(say(inputs[: place + 1]) == reply for place, reply in enumerate(replies)):
            return name
    return "degraded"


class Judgement:
    """A rater's; `guesses`: gives any number."""

    def __init__(self, seed: int, *, guesses: bool) -> None:
        self._generator, self._guesses = random.Random(seed), guesses

    def rate(self, replies: list[str], criteria: list[str]) -> list[int]:
        """A number for each criterion, in their order, of the chatbot that said all this."""
        assert len(replies) == len(INPUTS)
        taste = TASTES[recognize(list(INPUTS), replies)]
        return [self._rate(100 - taste if name == "repetitive" else taste) for name in criteria]

    def _rate(self, taste: int) -> int:
        opinion, chance = taste + self._generator.uniform(-10, 10), self._generator.uniform(0, 100)
        return round(chance if self._guesses else min(100, max(0, opinion)))


class QuickRater:
    """A rater who takes part by the calls that the page makes."""

    def __init__(self, client: httpx.AsyncClient, link: str, judgement: Judgement) -> None:
        self._client, self._judgement = client, judgement
        self._headers = {"Authorization": f"Bearer {link}", "Origin": str(client.base_url).rstrip("/")}

    async def take_part(self) -> str:
        """From the link to the code at the end."""
        study = (await self._client.get("/api/standing", headers=self._headers)).json()["study"]
        standing = await self._post("agreement", consent_hash=study["consent_hash"])
        names = [each["name"] for each in study["criteria"]]
        while not standing["finished"]:
            dialogue = (await self._post("begin"))["dialogue"]["id"]
            said = [
                (await self._post("message", dialogue=dialogue, number=number, text=text))["reply"]
                for number, text in enumerate(INPUTS)
            ]
            ratings = dict(zip(names, self._judgement.rate(said, names), strict=True))
            standing = await self._post("rating", dialogue=dialogue, ratings=ratings)
        return str(standing["code"])

    async def _post(self, act: str, **fields: Any) -> dict[str, Any]:
        answer = await self._client.post(f"/api/{act}", json=fields, headers=self._headers)
        return answer.raise_for_status().json()


class SimulatedRater:
    """A rater with a browser and a link. `look` sees every page, `breaks_off` closes one."""

    def __init__(
        self, context: Any, link: str, judgement: Judgement, *, breaks_off: bool = False, look: Look | None = None
    ) -> None:
        self.context, self.link, self.breaks_off, self.look = context, link, breaks_off, look
        self.judgement = judgement
        self.page: Any = None

    async def take_part(self) -> str:
        """From the link to the code at the end."""
        await self.open()
        await self.page.get_by_role("checkbox").press("Space")
        await self._see("consent")
        await self.page.get_by_role("button", name="Begin").press("Enter")
        while True:
            begin = self.page.get_by_role("button", name="Start the conversation")
            code = self.page.locator(".code:not([hidden]) strong")
            await begin.or_(code).wait_for()
            if await code.is_visible():
                await self._see("end")
                return str(await code.text_content())
            await self._see("before a conversation")
            await begin.press("Enter")
            await self.talk()
            await self.rate()

    async def open(self) -> None:
        """Opens the link in a new tab."""
        self.page = await self.context.new_page()
        await self.page.goto(self.link)

    async def talk(self) -> None:
        """Ten messages, sent with Enter; who breaks off closes the tab after the fourth and opens the link again."""
        for number, text in enumerate(INPUTS):
            if self.breaks_off and number == 4:
                await self.page.close()
                await self.open()
                await self.page.locator(".turn.system").nth(number - 1).wait_for()
                self.breaks_off = False
            field = self.page.get_by_label("Your message")
            await field.fill(text)
            await field.press("Enter")
            await self.page.locator(".turn.system").nth(number).wait_for()
        await self._see("conversation")
        await self.page.get_by_role("button", name="Rate this conversation").press("Enter")

    async def rate(self) -> None:
        """Sets every slider."""
        said = await self.page.locator(".turn.system .said").all_text_contents()
        sliders = await self.page.get_by_role("slider").all()
        names = [str(await slider.get_attribute("name")) for slider in sliders]
        for slider, rating in zip(sliders, self.judgement.rate(said, names), strict=True):
            await slider.fill(str(rating))
        await self._see("rating")
        await self.page.get_by_role("button", name="Send my ratings").press("Enter")

    async def _see(self, name: str) -> None:
        if self.look is not None:
            await self.look(self.page, name)
