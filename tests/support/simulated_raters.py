"""Raters in a browser: they talk by keyboard, tell the chatbots apart by what these say, and move every slider."""

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from turnscore_assessment.study.toys.chatbots import CHATBOTS

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
    """The toy chatbot that would have said all this; the degraded one if none of them would."""
    for name, say in CHATBOTS.items():
        if all(say(inputs[: place + 1]) == reply for place, reply in enumerate(replies)):
            return name
    return "degraded"


class SimulatedRater:
    """A rater with a link; `guesses`: sets the sliders anywhere. `look` sees every page, `breaks_off` closes one."""

    def __init__(
        self, context: Any, link: str, seed: int, *, guesses: bool, breaks_off: bool = False, look: Look | None = None
    ) -> None:
        self.context, self.link, self.guesses, self.breaks_off, self.look = context, link, guesses, breaks_off, look
        self.generator = random.Random(seed)
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
        """Sets every slider by what the chatbot said, or by chance."""
        said = await self.page.locator(".turn.system .said").all_text_contents()
        assert len(said) == len(INPUTS)
        taste = TASTES[recognize(list(INPUTS), said)]
        sliders = self.page.get_by_role("slider")
        for place in range(await sliders.count()):
            slider = sliders.nth(place)
            is_negative = await slider.get_attribute("name") == "repetitive"
            opinion = (100 - taste if is_negative else taste) + self.generator.uniform(-10, 10)
            chance = self.generator.uniform(0, 100)
            await slider.fill(str(round(chance if self.guesses else min(100, max(0, opinion)))))
        await self._see("rating")
        await self.page.get_by_role("button", name="Send my ratings").press("Enter")

    async def _see(self, name: str) -> None:
        if self.look is not None:
            await self.look(self.page, name)
