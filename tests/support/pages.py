"""The page in a real browser, and a service for it whose scorers have no model."""

import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import pytest
from turnscore_core.scorers.scorer import RawScore
from turnscore_load.machine import free_port
from turnscore_service.api.http.app import create_app

from support.fakes import FakeReaction, FakeScorer
from support.transports import listening, ready_runtime

HEADS = ("relevant", "fluent", "engaging", "sentiment", "continues", "overall")


class FakeQuality(FakeScorer):
    """A twentieth for each word; below two words a turn is low, and `engaging` is what pulls it down."""

    KIND = "quality"
    reason_heads = HEADS[:-1]

    def __init__(self):
        super().__init__()
        self.threshold = 0.08

    def score(self, batch):
        return [_rate(pack.width) for pack in batch if super(FakeQuality, self).score([pack])]


class FakeFed(FakeScorer):
    """A stand-in with two qualities."""

    KIND = "fed"

    def __init__(self):
        super().__init__()
        self.stand_in = True

    def score(self, batch):
        details = {"kind": -1.5, "kind_percentile": 20.0, "clear": 0.5, "clear_percentile": 70.0}
        return [RawScore(raw.value, details) for raw in super().score(batch)]


def _rate(words):
    value = min(1.0, words / 20)
    heads = {name: value if name == "engaging" else 0.6 for name in HEADS}
    return RawScore(value, heads | {f"{name}_percentile": 100 * head for name, head in heads.items()})


@asynccontextmanager
async def scoring(settings=None):
    """A ready runtime with `quality`, `engagement`, the stand-in `fed`, and `reaction` for user turns."""
    scorers = {"engagement": FakeScorer(), "fed": FakeFed(), "quality": FakeQuality()}
    scorers["reaction"] = FakeReaction()
    async with ready_runtime(settings, **scorers) as runtime:
        yield runtime


class Address:
    """An address of this machine at which the service is, or is not."""

    def __init__(self, runtime):
        self._runtime = runtime
        self._port = free_port()
        self._open = None
        self.url = f"http://127.0.0.1:{self._port}/"

    async def start(self):
        self._open = listening(create_app(self._runtime), self._runtime.settings, port=self._port)
        await self._open.__aenter__()

    async def stop(self):
        await self._open.__aexit__(None, None, None)


@asynccontextmanager
async def serving_page(settings=None):
    """The service with its page."""
    async with scoring(settings) as runtime:
        address = Address(runtime)
        await address.start()
        try:
            yield address
        finally:
            await address.stop()


def dialogue_of(turns):
    """So many turns, the user's first; every tenth of the chatbot's is one word, and low."""
    for place in range(turns):
        words = 1 if place % 20 == 19 else 3 + place % 15
        yield {
            "speaker": ("user", "system")[place % 2],
            "text": f"{place} " + "and so on " * (words // 3) if words > 1 else "ok.",
        }


TEXT = "User: hi\nBot: hello there, how are you?\nUser: fine.\nand you?\nBot: ok."
# As narrow as WCAG 2.2 asks for (1.4.10).
PHONE = {"viewport": {"width": 320, "height": 640}, "has_touch": True}
# What Chromium itself writes while a service is away.
AWAY = ("ERR_CONNECTION", "WebSocket connection to", "ERR_EMPTY_RESPONSE")


@dataclass
class Visit:
    """A page as a reader has it open, and what it should not have done."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    async def judge(self, text):
        await self.page.get_by_label("A conversation").fill(text)
        await self.page.get_by_role("button", name="Score it").click()
        await self.done()

    async def done(self):
        """Waits until the page says that it has judged."""
        await self.page.get_by_role("status").get_by_text("Scored.").wait_for(state="attached")

    async def numbers(self):
        return await self.page.locator("section:not([hidden]) .turn > .verdict .number").all_text_contents()

    async def look(self):
        """Asks axe-core, and whether everything fits the window's width."""
        from support.pages import find_violations  # skips where there is no browser

        assert await find_violations(self.page) == []
        assert await self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"

    def forgive(self, *words):
        """Leaves out what Chromium itself writes of a refusal that the test asked for."""
        self.complaints = [each for each in self.complaints if not any(word in each for word in words)]


@asynccontextmanager
async def visiting(browser, base, **options):
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


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("there is no Chromium: apt-get install chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python", reason="axe-core (axe-playwright-python) is not installed")

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
AXE = files(axe).joinpath("axe.min.js").read_text(encoding="utf-8")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@asynccontextmanager
async def chromium():
    """A browser without a window."""
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


async def find_violations(page):
    """What axe-core finds in the page as it stands, each as `rule: element`; all rules, WCAG 2.2's AA among them."""
    if await page.evaluate("typeof axe") == "undefined":
        await page.evaluate(AXE)
    found = await page.evaluate("tags => axe.run({runOnly: tags})", WCAG)
    assert found["passes"], "axe-core looked at nothing"
    return [f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"]]
