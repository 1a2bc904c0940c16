"""The page in Debian's Chromium, by mouse and by keyboard, with axe-core: reading, changing, taking away, comparing."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from support.pages import TEXT
from turnscore_wire.messages import ChatMessage, map_messages

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPENAI = {"messages": [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "x"}}]},
    {"role": "assistant", "content": "hello there, how are you?"},
    {"role": "assistant", "content": None, "tool_calls": []},
]}  # fmt: skip
LINES = """{"context": [{"speaker": "user", "text": "hi"}], "response": "hello there"}
{"turns": [{"speaker": "system", "text": "second"}]}"""


async def test_one_click_in_the_page_judges_an_example_and_says_why(visit):
    async with visit() as seen:
        page = seen.page
        await seen.look()
        await page.get_by_role("button", name="A free weekend").click()
        await page.get_by_role("heading", name="8 turns, 4 of the chatbot’s", level=1).wait_for()
        await seen.done()
        assert await seen.numbers() == ["80", "70", "95", "5"]
        last = page.locator(".turn").last
        assert await last.locator(".badge").text_content() == "▼ low"
        assert await last.locator(".why").text_content() == "Weak: it gives nothing to go on with (engaging\xa05)."
        assert "1 of 4 turns is low." in await page.locator(".summary").first.text_content()
        assert await page.locator(".charts:visible figure").count() == 2  # fed only stands in, and is not asked
        assert await page.locator(".threshold").count() == 1
        await seen.look()
        assert await page.get_by_role("link", name="API docs").get_attribute("href") == "docs"


async def test_a_user_s_turn_has_its_signals_beside_it_and_nobody_chooses_their_scorer(visit):
    async with visit() as seen:
        page = seen.page
        assert await page.locator("ts-scorers").first.locator("input").evaluate_all("all => all.map(e => e.value)") == [
            "quality", "engagement", "fed",
        ]  # fmt: skip
        await seen.judge("User: no that is wrong\nBot: sorry, what is it then?\nUser: fine\nBot: ok.")
        users = page.locator("#read .turn.user")
        assert await users.locator(".signals").all_text_contents() == ["frustrated", "pleased"]
        assert await users.first.locator(".verdict").count() == 0
        assert await users.first.locator(".acts").text_content() == "DetailsEdit"
        await users.first.get_by_role("button", name="Details").click()
        assert "How does the user take it?" in await users.first.locator(".panel").text_content()
        assert await seen.numbers() == ["25", "5"]
        await seen.look()
        await page.get_by_role("link", name="Talk").click()
        await page.get_by_label("What is said").fill("no that is wrong")
        await page.get_by_label("What is said").press("Enter")
        await page.get_by_role("status").get_by_text("The user: frustrated.").wait_for(state="attached")
        assert await page.locator("#talk .signals").all_text_contents() == ["frustrated"]


async def test_turns_and_charts_are_linked_both_ways_and_go_by_keyboard(visit):
    async with visit() as seen:
        page = seen.page
        await page.get_by_role("button", name="A free weekend").press("Enter")
        await seen.done()
        assert await page.evaluate("document.activeElement.tagName") == "H1"
        await page.get_by_role("button", name="Lowest turn").press("Enter")
        where, current = page.locator(".where:visible"), page.locator("[aria-current=true]:visible .place")
        assert [await where.text_content(), await current.text_content()] == ["Turn 8", "8"]
        for key, turn, of_chatbot in (("ArrowUp", "7", "Turn 6"), ("Home", "1", "Turn 2"), ("j", "2", "Turn 2")):
            await page.keyboard.press(key)
            assert [await current.text_content(), await where.text_content()] == [turn, of_chatbot], key
        slider = page.get_by_role("slider")
        await slider.press("ArrowRight")
        assert await slider.get_attribute("aria-valuetext") == "Turn 4: quality 70, engagement 14"
        assert await current.text_content() == "4"
        chart = page.get_by_role("img", name="quality from 0 to 100.")
        assert "mean 63, lowest 5 at turn 8" in await chart.get_attribute("aria-label")
        box = await chart.bounding_box()
        await page.mouse.click(box["x"] + box["width"] - 9, box["y"] + 20)
        assert [await where.text_content(), await current.text_content()] == ["Turn 8", "8"]


PASTED = [
    (json.dumps(OPENAI), "Recognised as OpenAI messages: 2 turns, 1 of the chatbot’s; 3 parts left out", ["25"]),
    (TEXT, "Recognised as labelled text: 4 turns, 2 of the chatbot’s.", ["25", "5"]),
    ("Ann: hi\nEliza: do you say hi?", "Recognised as labelled text, ann as the user: 2 turns, 1", ["20"]),
    (LINES, "Recognised as JSON lines (turns): 2 conversations, of which the chosen one is scored.", ["10"]),
]


@pytest.mark.parametrize(("pasted", "told", "numbers"), PASTED)
async def test_what_is_pasted_is_recognised(visit, pasted, told, numbers):
    async with visit() as seen:
        await seen.page.get_by_label("A conversation").fill(pasted)
        assert told in await seen.page.locator("#read .note").text_content()
        await seen.judge(pasted)
        assert await seen.numbers() == numbers


async def test_what_is_not_recognised_is_said_before_anything_is_sent(visit):
    async with visit() as seen:
        box = seen.page.get_by_label("A conversation")
        for pasted, problem in (
            ("", "Paste a conversation first."),
            ("hello there", "Begin each turn with who says it"),
            ("[1, 2", "This begins like JSON, and is not JSON."),
            ('{"a": 1}', "This JSON holds neither"),
            ('{"turns": [{"speaker": "system", "text": "a"}]}\n{', "Line 2 is not JSON."),
            ("User: hi", "There is no turn of the chatbot in it."),
            ('[{"role": "oracle", "content": "x"}]', "“oracle” is no role of a chat."),
        ):
            await box.fill(pasted)
            await box.press("Control+Enter")
            assert problem in await seen.page.locator("#read .note").text_content()
            assert await box.get_attribute("aria-invalid") == "true"
        await seen.look()


async def test_a_reply_is_edited_ranked_and_replaced_and_the_page_says_by_how_much_it_changed(visit):
    async with visit(color_scheme="dark") as seen:
        page = seen.page
        await seen.judge(TEXT)
        last = page.locator(".turn").nth(3)
        await last.get_by_role("button", name="Edit").click()
        field = last.get_by_label("Text of turn 4")
        await seen.look()
        await field.fill("i am fine too")
        await field.press("Control+Enter")
        await last.get_by_text("▲ up 15").wait_for()
        assert await seen.numbers() == ["25", "20"]
        await last.get_by_role("button", name="Other replies").click()
        await last.get_by_label("Other replies to").fill("ok.\none two three four five six\n")
        await last.get_by_role("button", name="Rank them").click()
        ranked = last.locator(".ranked li")
        await ranked.nth(2).wait_for()
        assert await ranked.locator(".number").all_text_contents() == ["30", "20", "5"]
        assert await ranked.nth(1).locator(".fine").text_content() == "What was said."
        await seen.look()
        await ranked.first.get_by_role("button", name="Use this reply").click()
        await last.get_by_text("▲ up 10").wait_for()
        assert await last.locator(".said").text_content() == "one two three four five six"


async def test_details_have_every_head_and_quality_what_was_left_out_the_models_and_the_times(visit):
    async with visit() as seen:
        page = seen.page
        await seen.judge(TEXT)
        await page.get_by_role("checkbox", name="fed stand-in").locator("visible=true").check()
        await page.locator(".charts:visible figure").nth(2).wait_for()
        turn = page.locator(".turn").nth(1)
        await turn.get_by_role("button", name="Details").click()
        told = await turn.locator(".details").inner_text()
        assert "only stands in for a better one" in told
        assert [await each.text_content() for each in await turn.locator(".parts .name").all()][-2:] == [
            "kind",
            "clear",
        ]
        for fact in ("25 % would call it good", "5 read, none left out", "quality:1.0.0, fp32", "inference"):
            assert fact in told
        await seen.look()
        summary = page.locator("#read summary")
        await summary.click()
        rows = page.locator("#read tbody tr")
        await rows.nth(1).wait_for()
        assert (await rows.nth(1).inner_text()).split("\t") == ["4", "ok.", "5", "1", "1", "low"]
        await seen.look()
        await page.get_by_role("button", name="Theme: auto").click()
        await seen.look()


async def test_what_is_taken_away_is_the_same_request_and_its_reply(visit):
    hostile = 'User: it\'s "so" $HOME \\n `x` %s\nBot: =1+1, "quoted"'
    async with visit(permissions=["clipboard-read", "clipboard-write"]) as seen:
        page = seen.page
        await seen.judge(hostile)
        code = {}
        for name in ("curl", "Python"):
            await page.get_by_role("button", name=name).click()
            code[name] = await page.get_by_role("dialog").locator("textarea").input_value()
            await seen.look()
            await page.get_by_role("button", name="Copy it").click()
            await page.get_by_role("status").get_by_text("Copied.").wait_for()
            assert await page.evaluate("navigator.clipboard.readText()") == code[name]
            await page.get_by_role("status").evaluate("status => status.textContent = ''")
        files = {}
        for name in ("JSON", "CSV"):
            async with page.expect_download() as taking:
                await page.get_by_role("button", name=name, exact=True).click()
            files[name] = Path(await (await taking.value).path()).read_bytes().decode()
    printed = await run("bash", "-c", code["curl"])
    assert json.loads(printed)["turns"][1]["scores"]["quality"]["value"] == 0.1
    told = (await run(sys.executable, "-c", code["Python"])).splitlines()
    assert (told[0].split()[::3], told[1]) == (["0", "frustrated"], "1 10.0 fair")
    taken = json.loads(files["JSON"])
    assert taken["request"]["turns"][1]["text"] == '=1+1, "quoted"'
    assert taken["reply"]["turns"][1]["scores"]["quality"]["value"] == 0.1
    assert files["CSV"].splitlines()[2].startswith('1,system,"\'=1+1, ""quoted""",0.1,10,fair,')


async def test_two_conversations_are_compared_turn_by_turn(visit):
    async with visit(color_scheme="dark") as seen:
        page = seen.page
        await page.get_by_role("link", name="Compare").click()
        await seen.look()
        await page.get_by_role("button", name="Show an example").click()
        await seen.done()
        assert (
            "conversation A goes better: mean percentile 53, B 20."
            in await page.locator("#compare .summary").text_content()
        )
        means = await page.locator("#compare .means tbody tr").first.inner_text()
        assert means.split("\t") == ["quality", "53", "20", "−33", "40", "15"]
        await page.get_by_role("slider").press("End")
        marked = page.locator("#compare [aria-current=true] .place")
        assert await marked.all_text_contents() == ["6", "6"]
        await seen.look()


MESSAGES = [
    OPENAI["messages"],
    [{"role": "user", "content": " "}, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
    [
        {"role": "user", "content": "what is the time?"},
        {"role": "assistant", "content": "let me see.", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "noon"},
        {"role": "assistant", "content": "it is noon."},
    ],
    [
        {"role": "user", "parts": [{"type": "text", "content": "one"}, {"type": "text", "text": " two"}]},
        {"role": "assistant", "content": [{"type": "tool_use"}, {"type": "thinking"}]},
        {"role": "user", "content": [{"type": "tool_result"}]},
        {"role": "assistant", "content": None, "refusal": "i may not say."},
        {"role": "developer", "content": "x"},
        {"role": "assistant", "content": "more"},
    ],
    [
        {"role": "assistant", "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {"role": "function", "content": "x"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "audio": {"id": "1"}},
    ],
]


async def test_messages_become_the_very_turns_that_the_service_makes_of_them(visit):
    script = """async (all) => {
      const { recognise } = await import("./page/recognise.js");
      return all.map((messages) => recognise(JSON.stringify(messages)).dialogues[0].turns);
    }"""
    mapped = [map_messages([ChatMessage.model_validate(each) for each in messages]).turns for messages in MESSAGES]
    async with visit() as seen:
        assert await seen.page.evaluate(script, MESSAGES) == [
            [turn.model_dump() for turn in turns if turn.text.strip()] for turns in mapped
        ]


async def run(*command):
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, complained = await process.communicate()
    assert process.returncode == 0, complained.decode()
    return printed.decode()
