"""`python -m support.screenshots FOLDER`: the page on the starter models, as PNG files."""

import asyncio
import io
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from support.pages import chromium
from support.processes import running_service

COLOURS = 256  # of a picture: the most frequent ones, exactly; the edges of letters take the nearest of these
DESK = {"viewport": {"width": 1200, "height": 800}}


async def judge(page: Any, name: str) -> None:
    await page.get_by_role("button", name=name).click()
    await done(page)


async def done(page: Any) -> None:
    await page.get_by_role("status").get_by_text("Scored.").wait_for(state="attached")


async def show_reading(page: Any) -> None:
    await judge(page, "Bad news")


async def show_details(page: Any) -> None:
    """The lowest turn of an example, with all that is known of it."""
    turn = await open_turn(page, "Details")
    await to_top(turn)


async def show_replies(page: Any) -> None:
    """The same turn, with other replies beside what was said."""
    turn = await open_turn(page, "Other replies")
    await turn.get_by_label("Other replies to").fill("how do they do it?\nthat sounds fun! do they use the sun?")
    await turn.get_by_role("button", name="Rank them").click()
    await turn.locator(".ranked li").nth(2).wait_for()
    await to_top(turn)


async def open_turn(page: Any, button: str) -> Any:
    await judge(page, "A proud moment")
    turn = page.locator(".turn").nth(3)
    await turn.get_by_role("button", name=button).click()
    return turn


async def to_top(turn: Any) -> None:
    await turn.evaluate("turn => (document.activeElement.blur(), scrollTo(0, turn.offsetTop - 16))")


async def show_comparison(page: Any) -> None:
    await page.get_by_role("link", name="Compare").click()
    await page.get_by_role("button", name="Show an example").click()
    await done(page)


SHOTS: dict[str, tuple[dict[str, Any], Callable[[Any], Awaitable[None]]]] = {
    "reading": (DESK, show_reading),
    "details": (DESK, show_details),
    "replies": (DESK, show_replies),
    "comparing": ({**DESK, "color_scheme": "dark"}, show_comparison),
}


async def take(browser: Any, url: str, folder: Path) -> None:
    for name, (options, show) in SHOTS.items():
        context = await browser.new_context(**options)
        page = await context.new_page()
        await page.goto(url)
        await show(page)
        picture = Image.open(io.BytesIO(await page.screenshot(animations="disabled"))).convert("RGB")
        path = folder / f"{name}.png"
        with_few_colours(picture).save(path, optimize=True)
        print(f"{path}: {path.stat().st_size:,} bytes")
        await context.close()


def with_few_colours(picture: Image.Image) -> Image.Image:
    pixels = np.asarray(picture, dtype=np.int32)
    colours, places, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    kept = colours[np.argsort(-counts)[:COLOURS]]
    nearest = np.array([((kept - colour) ** 2).sum(1).argmin() for colour in colours], np.uint8)
    drawn = Image.fromarray(nearest[places].reshape(pixels.shape[:2]))
    drawn.putpalette(kept.astype(np.uint8).tobytes())
    return drawn


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, running_service(Path(place)) as service:
        async with chromium() as browser:
            await take(browser, service.url, folder)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
