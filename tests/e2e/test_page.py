"""The page on the starter models, from the service that all tests here share."""

import pytest
from support.pages import visiting
from support.processes import RunningService
from turnscore_client import TurnScoreClient

pytestmark = pytest.mark.e2e


async def test_one_click_after_opening_it_shows_the_very_scores_of_the_service(
    service: RunningService, client: TurnScoreClient
) -> None:
    from support.pages import chromium  # skips where there is no browser

    async with chromium() as browser, visiting(browser, f"{service.url}/") as seen:
        await seen.page.get_by_role("button", name="Bad news").click()
        await seen.done()
        shown = await seen.numbers()
        texts = await seen.page.locator("#read .said").all_text_contents()
        turns = [(("user", "system")[place % 2], text) for place, text in enumerate(texts)]
        scores = [turn.scores["quality"] for turn in client.score_dialogue(turns).turns]
        assert shown == [str(round(score.percentile)) for score in scores if score.percentile is not None]
        assert len(shown) == 4
        labels = await seen.page.locator(".badge:not(.signals *)").all_text_contents()
        assert [label.split()[1] for label in labels] == [score.label for score in scores]
        await seen.look()
