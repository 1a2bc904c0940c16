"""Debian's Chromium, driven by Playwright, and axe-core in it. Skips a module that imports it where one is missing."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import pytest

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
async def chromium() -> AsyncIterator[Any]:
    """A browser without a window."""
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


async def find_violations(page: Any) -> list[str]:
    """What axe-core finds in the page as it stands, each as `rule: element`; all rules, WCAG 2.2's AA among them."""
    await page.evaluate(AXE)
    found = await page.evaluate("tags => axe.run({runOnly: tags})", WCAG)
    assert found["passes"], "axe-core looked at nothing"
    return [f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"]]
