"""A reader's visit to the page in a browser: what the page did, and what it should not have done."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Open = Callable[..., Any]
"""`async with visit(url, **options of a context) as seen`."""
TEXT = "User: hi\nBot: hello there, how are you?\nUser: fine.\nand you?\nBot: ok."
PHONE: dict[str, Any] = {"viewport": {"width": 320, "height": 640}, "has_touch": True}
"""As narrow as WCAG 2.2 asks for (1.4.10)."""
AWAY = ("ERR_CONNECTION", "WebSocket connection to", "ERR_EMPTY_RESPONSE")
"""What Chromium itself writes while a service is away."""


@dataclass
class Visit:
    """A page as a reader has it open, and what it should not have done."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    async def judge(self, text: str) -> None:
        await self.page.get_by_label("A conversation").fill(text)
        await self.page.get_by_role("button", name="Judge it").click()
        await self.done()

    async def done(self) -> None:
        """Waits until the page says that it has judged."""
        await self.page.get_by_role("status").get_by_text("Judged.").wait_for(state="attached")

    async def numbers(self) -> list[str]:
        return await self.page.locator("section:not([hidden]) .turn > .verdict .number").all_text_contents()

    async def look(self) -> None:
        """Asks axe-core, and whether everything fits the window's width."""
        from support.browsers import find_violations  # skips where there is no browser

        assert await find_violations(self.page) == []
        assert await self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"

    def forgive(self, *words: str) -> None:
        """Leaves out what Chromium itself writes of a refusal that the test asked for."""
        self.complaints = [each for each in self.complaints if not any(word in each for word in words)]


@asynccontextmanager
async def visiting(browser: Any, base: str, **options: Any) -> AsyncIterator[Visit]:
    """A page at `base`. At its end nothing was complained of, nobody else was asked, and nothing is stored."""
    context = await browser.new_context(**options)
    context.set_default_timeout(60_000)
    seen = Visit(await context.new_page())
    context.on("console", lambda message: seen.complaints.append(message.text))
    context.on("weberror", lambda error: seen.complaints.append(str(error.error)))
    own = (base, base.replace("http", "ws", 1), "blob:" + base)
    seen.page.on("request", lambda request: None if request.url.startswith(own) else seen.foreign.append(request.url))
    await seen.page.goto(base)
    yield seen
    assert [seen.complaints, seen.foreign] == [[], []]
    assert await seen.page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    await context.close()
