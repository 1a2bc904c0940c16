"""The page in Debian's Chromium: live, with a service that goes away or wants a key, hostile texts, many turns."""

import json

import pytest
from support.pages import AWAY, PHONE, TEXT, dialogue_of, serving_page
from turnscore_service.settings.api import AuthSettings, KeyEntry
from turnscore_service.settings.service import Settings

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_live_conversation_is_scored_as_it_is_said_and_survives_a_restart(visit, service):
    async with visit(**PHONE) as seen:
        page = seen.page
        await page.get_by_role("link", name="Talk").click()
        await seen.look()
        said = page.get_by_label("What is said")

        async def say(text):
            await said.fill(text)
            await said.press("Enter")

        await say("hi")
        await page.get_by_text("hi", exact=True).wait_for()
        assert await page.get_by_role("radio", name="Chatbot").is_checked()
        await say("one two three")
        await page.locator("#talk .verdict").first.wait_for()
        assert await seen.numbers() == ["15"]
        await seen.look()
        assert seen.complaints == []
        await service.stop()
        await page.get_by_role("status").get_by_text("the next turn opens it again").wait_for(state="attached")
        await say("and then?")
        await page.get_by_role("alert").get_by_text("The service does not answer.").wait_for()
        await seen.look()
        await service.start()
        await page.get_by_text("and then?", exact=True).wait_for()
        await say("the end")
        await page.locator("#talk .verdict").nth(1).wait_for()
        assert await seen.numbers() == ["15", "10"]
        assert await page.get_by_role("alert").is_hidden()
        await page.get_by_role("button", name="Read and change it").click()
        await seen.done()
        assert await seen.numbers() == ["15", "10"]
        seen.forgive(*AWAY)


async def test_a_conversation_pasted_while_the_service_is_away_is_judged_when_it_is_back(visit, service):
    async with visit() as seen:
        page = seen.page
        await page.get_by_text("Models: quality:1.0.0").wait_for()
        await service.stop()
        await page.get_by_label("A conversation").fill(TEXT)
        await page.get_by_role("button", name="Score it").click()
        stop = page.get_by_role("button", name="Do not wait")
        await stop.click()
        await page.get_by_role("alert").wait_for(state="hidden")
        await page.get_by_role("button", name="Score it").click()
        await stop.wait_for()
        await service.start()
        await seen.done()
        assert await seen.numbers() == ["25", "5"]
        seen.forgive(*AWAY)


async def test_the_page_asks_for_a_key_and_keeps_it_in_memory_alone(visit):
    sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
    settings = Settings(auth=AuthSettings(keys={"reader": KeyEntry(sha256=sha256)}))
    async with serving_page(settings) as other, visit(other.url) as seen:
        page = seen.page
        dialog = page.get_by_role("dialog")
        await dialog.get_by_text("This service wants an API key.").wait_for()
        await seen.look()
        await dialog.get_by_label("Key").fill("wrong")
        await dialog.get_by_label("Key").press("Enter")
        await dialog.get_by_text("This key is not known to the service.").wait_for()
        await dialog.get_by_label("Key").fill("secret")
        await dialog.get_by_role("button", name="Use it").click()
        await seen.judge(TEXT)
        await page.get_by_role("button", name="curl").click()
        command = await page.get_by_role("dialog").locator("textarea").input_value()
        assert "$TURNSCORE_API_KEY" in command
        assert "secret" not in command
        await page.get_by_role("button", name="Close").click()
        await page.get_by_role("link", name="Talk").click()
        await page.get_by_label("What is said").fill("hi")
        await page.get_by_label("What is said").press("Enter")
        await page.locator("#talk .said").wait_for()
        assert "secret" not in await page.content()
        seen.forgive("status of 401")


async def test_hostile_texts_stay_texts(visit):
    texts = [
        "<script>document.title = 'taken'</script><img src=x onerror=alert(1)>",
        "שלום \u202e<b>olleh</b> مرحبا",
        "long " * 1600,
        "</textarea></template>&lt;ok&gt; \u2028 🧨",
        "javascript:alert(1) http://elsewhere.example/x.js",
    ]
    turns = [
        {"speaker": ("user", "system")[place % 2], "text": text}
        for place, text in enumerate(["hi", texts[0], *texts[1:]])
    ]
    async with visit(**PHONE) as seen:
        page = seen.page
        await seen.judge(json.dumps({"turns": turns}))
        assert await page.title() == "Read · turnscore"
        assert await page.locator(".said b, .said script, .said img").count() == 0
        shown = await page.locator("#read .said").all_text_contents()
        assert shown[1:3] == texts[:2]
        await page.get_by_role("button", name="Show all 8,000 characters").click()
        assert await page.locator("#read .said").nth(3).text_content() == texts[2]
        await page.locator("#read summary").click()
        await page.locator("#read tbody tr").nth(2).wait_for()
        for details in await page.get_by_role("button", name="Details").all():
            await details.click()
        await seen.look()
        too_long = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "a" * 8001}]
        await page.get_by_role("button", name="Change text").click()
        await page.get_by_label("A conversation").fill(json.dumps(too_long))
        await page.get_by_role("button", name="Score it").click()
        await page.get_by_role("alert").get_by_text("Turn 2: ").wait_for()
        seen.forgive("status of 413")


async def test_a_thousand_turns_are_judged_and_one_of_them_is_edited(visit):
    async with visit() as seen:
        page = seen.page
        await page.get_by_label("A conversation").fill(json.dumps(list(dialogue_of(1000))))
        await page.get_by_role("button", name="Score it").click()
        await seen.done()
        row = page.locator(".turn").nth(499)
        await row.get_by_role("button", name="Edit").click()
        await row.get_by_label("Text of turn 500").fill("another reply with eight words in it all")
        await row.get_by_role("button", name="Save").click()
        await row.locator(".change").wait_for()
        assert await page.locator(".turn").count() == 1000
