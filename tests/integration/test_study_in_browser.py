"""A study in Debian's Chromium: raters, three chatbots and a degraded one, and axe-core on every page."""

from contextlib import asynccontextmanager
from importlib.resources import files

import pytest
from sqlalchemy import select
from support.conditions import until
from support.files import write_lines
from support.pages import find_violations
from support.studies import ScriptedBot, plan_fields
from support.transports import listening
from turnscore_assessment.study.database import dialogues, open_database
from turnscore_assessment.study.demo import INPUTS, Judgement, create_demo_app
from turnscore_assessment.study.plan import StudyPlan, read_plan
from turnscore_assessment.study.recordings import export_ratings, read_recordings
from turnscore_assessment.study.server import build_app, list_origins
from turnscore_assessment.study.workers import invite_workers
from turnscore_load.machine import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")
# By default a connection that is quiet for 5 s is closed, on a slow machine just when it is used again.
QUIET = {"timeout_keep_alive": 60, "lifespan": "auto"}
_PATIENCE_MS = 120_000  # for one step of a page. A machine may be slow: only what hangs takes longer.


def make_demo_plan(folder, port):
    demo = files("turnscore_assessment.study") / "demo_files"
    for name in ("STUDY.toml", "corpus.jsonl"):
        text = demo.joinpath(name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace(":8210/", f":{port}/"), encoding="utf-8")
    return read_plan(folder / "STUDY.toml")


@asynccontextmanager
async def served(plan, workers):
    """The study's address, its database, and links of so many workers."""
    port = free_port()
    database = open_database(plan)
    links = database.run_here(invite_workers, database.study_id, workers, 1.0)
    app = build_app(plan, database, list_origins("127.0.0.1", port, None))
    async with listening(app, port=port, **QUIET) as address:
        yield f"http://{address}", database, links


async def new_context(browser, **options):
    context = await browser.new_context(**options)
    context.set_default_timeout(_PATIENCE_MS)
    return context


async def test_a_rater_takes_part_on_pages_without_a_barrier(tmp_path, browser):
    bots = free_port()
    plan = make_demo_plan(tmp_path, bots)
    violations = {}
    complaints = []
    async with listening(create_demo_app(), port=bots, **QUIET), served(plan, 1) as (url, database, [link]):
        context = await new_context(browser)
        context.on("console", lambda message: complaints.append(message.text))
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        page, judgement = await context.new_page(), Judgement(0, guesses=False)

        async def look(name):
            if name not in violations:
                violations[name] = await find_violations(page)

        async def press(name):
            await page.get_by_role("button", name=name).press("Enter")

        async def talk_and_rate():
            for number, text in enumerate(INPUTS):
                field = page.get_by_label("Your message")
                await field.fill(text)
                await field.press("Enter")
                await page.locator(".turn.system").nth(number).wait_for()
            await look("conversation")
            await press("Rate this conversation")
            said = await page.locator(".turn.system .said").all_text_contents()
            sliders = await page.get_by_role("slider").all()
            names = [str(await slider.get_attribute("name")) for slider in sliders]
            for slider, rating in zip(sliders, judgement.rate(said, names), strict=True):
                await slider.fill(str(rating))
            await look("rating")
            await press("Send my ratings")

        await page.goto(f"{url}/#{link}")
        await page.get_by_role("checkbox").press("Space")
        await look("consent")
        await press("Begin")
        for _ in range(4):
            await page.get_by_role("button", name="Start the conversation").wait_for()
            await look("before a conversation")
            await press("Start the conversation")
            await talk_and_rate()
        code = page.locator(".code:not([hidden]) strong")
        await code.wait_for()
        await look("end")
        assert await code.text_content() == link.code
        ratings = database.run_here(export_ratings, database.study_id, plan, read_recordings(plan), with_texts=True)
    assert complaints == []
    assert set(violations) == {"consent", "before a conversation", "conversation", "rating", "end"}
    assert [each for found in violations.values() for each in found] == []
    assert sorted(each.system for each in ratings.dialogues) == ["brief", "companion", "degraded", "echo"]


async def test_no_other_page_has_a_barrier_and_all_of_it_goes_by_keyboard(tmp_path, browser):
    turns = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]
    recorded = write_lines(tmp_path / "recorded.jsonl", *({"id": name, "turns": turns} for name in ("d1", "d2")))
    systems = [{"name": "A", "dialogues": recorded}]
    asked = plan_fields(database=str(tmp_path / "study.sqlite3"), systems=systems, dialogues_per_system=2)
    plan = StudyPlan.model_validate(asked)
    async with served(plan, 1) as (url, database, [link]):
        page = await (await new_context(browser, color_scheme="dark")).new_page()

        async def see(heading):
            await page.get_by_role("heading", name=heading, exact=True, level=1).wait_for()
            assert await page.evaluate("document.activeElement.tagName") == "H1", heading
            assert await find_violations(page) == [], heading

        async def press(*keys):
            for key in keys:
                await page.keyboard.press(key)

        await page.goto(url)
        await see("A link is needed")
        await page.goto(f"{url}/#unknown.link")
        await see("The study cannot be shown")
        await page.goto(f"{url}/#{link}")
        await see("Before you begin")
        await press("Tab", "Space", "Tab", "Enter")
        await see("Next: conversation 1 of 2")
        await press("Tab", "Enter")
        await see("Conversation 1 of 2")
        fun, repetitive = page.get_by_label("It was fun."), page.get_by_label("It repeated itself.")
        await press("Tab", "Tab", "Home", "PageUp", "ArrowRight")  # the log, then the first slider
        assert await fun.get_attribute("aria-valuetext") == "11, from 0 (strongly disagree) to 100 (strongly agree)"
        await press("Tab", "Tab", "Enter")
        alert = page.get_by_role("alert")
        assert await alert.text_content() == "Please set every slider: “It repeated itself.” is not set yet."
        assert await find_violations(page) == []
        assert await repetitive.evaluate("slider => slider === document.activeElement")
        await page.reload()
        assert await fun.input_value() == "11"
        await repetitive.press("Enter")  # the middle, as it stands
        await press("Tab", "Enter")
        await see("Next: conversation 2 of 2")
        assert database.run_here(_read_ratings) == [{"fun": 11.0, "repetitive": 50.0}]
        await page.get_by_role("button", name="Leave the study").press("Enter")
        await see("Leave the study?")
        await page.get_by_role("button", name="Delete my part and leave").press("Enter")
        await see("You have left the study")
        await page.reload()
        await see("You have left the study")
        assert database.run_here(_read_ratings) == []


async def test_when_a_chatbot_or_the_network_fails_the_page_says_so_and_goes_on(tmp_path, browser):
    bot, bots = ScriptedBot(), free_port()
    systems = [{"name": name, "url": f"http://127.0.0.1:{bots}/v1/chat/completions"} for name in "AB"]
    plan = StudyPlan.model_validate(plan_fields(database=str(tmp_path / "study.sqlite3"), systems=systems))
    async with listening(bot.app, port=bots, **QUIET), served(plan, 1) as (url, _database, [link]):
        context = await new_context(browser)
        page = await context.new_page()
        await page.goto(f"{url}/#{link}")
        await page.get_by_role("checkbox").check()
        await page.get_by_role("button", name="Begin").click()
        await page.get_by_role("button", name="Start the conversation").click()
        alert, again = page.get_by_role("alert"), page.get_by_role("button", name="Try again")
        give_up = page.get_by_role("button", name="Go on without this conversation")

        async def say(where, text):
            await where.get_by_label("Your message").fill(text)
            await where.get_by_label("Your message").press("Enter")

        await context.set_offline(True)
        await say(page, "one")
        await alert.get_by_text("The server cannot be reached.").wait_for()
        assert await find_violations(page) == []
        await context.set_offline(False)
        await again.click()
        await page.get_by_text("reply 1").wait_for()
        assert await alert.text_content() == ""

        bot.gate.clear()
        await say(page, "two")
        await page.get_by_role("status").get_by_text("The chatbot is answering").wait_for()
        other = await context.new_page()
        await other.goto(f"{url}/#{link}")  # a second tab waits for the same reply
        await other.get_by_role("status").get_by_text("The chatbot is answering").wait_for()
        bot.gate.set()
        await page.get_by_text("reply 2").wait_for()
        await other.get_by_text("reply 2").wait_for()
        assert len(bot.asked) == 2
        await say(other, "three")
        await other.get_by_text("reply 3").wait_for()
        await page.bring_to_front()  # Chromium shows a tab behind another once a second
        await say(page, "another three")
        await alert.get_by_text("The conversation has gone on elsewhere").wait_for()
        said = await page.locator(".said").all_text_contents()
        assert said == ["one", "reply 1", "two", "reply 2", "three", "reply 3"]

        bot.status = 500
        await say(page, "four")
        await alert.get_by_text("The chatbot did not answer").wait_for()
        await again.click()
        await until(lambda: len(bot.asked) == 5)
        await again.click()
        await give_up.click()
        await page.get_by_role("heading", name="Next: conversation 2 of 2", exact=True).wait_for()


def _read_ratings(connection):
    return list(connection.execute(select(dialogues.c.ratings).where(dialogues.c.state == "rated")).scalars())
