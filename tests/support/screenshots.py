"""`python -m support.screenshots FOLDER`: the page on the starter models, as PNG files."""

import asyncio
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from support.pages import chromium, visiting
from support.processes import running_service

DESK = {"viewport": {"width": 1200, "height": 800}}


async def show_example(seen, name):
    await seen.page.get_by_role("button", name=name).click()
    await seen.done()


async def show_lowest(seen, button):
    """The lowest turn of an example, with all that is known of it, or with other replies beside what was said."""
    await show_example(seen, "A proud moment")
    turn = seen.page.locator(".turn").nth(3)
    await turn.get_by_role("button", name=button).click()
    if button == "Other replies":
        await turn.get_by_label("Other replies to").fill("how do they do it?\nthat sounds fun! do they use the sun?")
        await turn.get_by_role("button", name="Rank them").click()
        await turn.locator(".ranked li").nth(2).wait_for()
    await turn.evaluate("turn => (document.activeElement.blur(), scrollTo(0, turn.offsetTop - 16))")


async def show_comparison(seen, example):
    await seen.page.get_by_role("link", name="Compare").click()
    await show_example(seen, example)


SHOTS = {
    "reading": (DESK, show_example, "Bad news"),
    "details": (DESK, show_lowest, "Details"),
    "replies": (DESK, show_lowest, "Other replies"),
    "comparing": ({**DESK, "color_scheme": "dark"}, show_comparison, "Show an example"),
}


async def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, running_service(Path(place)) as service:
        async with chromium() as browser:
            for name, (options, show, what) in SHOTS.items():
                async with visiting(browser, f"{service.url}/", **options) as seen:
                    await show(seen, what)
                    picture = Image.open(io.BytesIO(await seen.page.screenshot(animations="disabled"))).convert("RGB")
                path = folder / f"{name}.png"
                picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
                print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
