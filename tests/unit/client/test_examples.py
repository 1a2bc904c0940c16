"""The examples: each is run, as a caller runs it, on a service in this process."""

import json
import runpy
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.fakes import FakeScorer
from support.transports import served_app
from turnscore_client import AsyncBackgroundScorer

FOLDER = Path(__file__).parents[3] / "clients" / "examples"


@pytest.fixture(scope="module")
def url():
    with served_app(engagement=FakeScorer()) as (address, _):
        yield address


def run(name, url, monkeypatch, *arguments, typed=""):
    monkeypatch.setenv("TURNSCORE_URL", url)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    monkeypatch.setattr(sys, "stdin", StringIO(typed))
    runpy.run_path(str(FOLDER / name), run_name="__main__")


def test_the_chatbot_scores_each_of_its_replies(url, monkeypatch, capsys):
    typed = "i went for a walk\nit was very long and went along the river with my sister\n\n"
    run("chatbot.py", url, monkeypatch, typed=typed)
    assert capsys.readouterr().out.splitlines() == [
        "tell me more about walk! what was it like?   (more engaging than 9 % of turns; mean so far 0.09)",
        "ok.   (more engaging than 1 % of turns; mean so far 0.05)",
    ]


def test_the_best_of_several_replies_is_said(url, monkeypatch, capsys):
    run("best_of_n.py", url, monkeypatch, "hi, what did you do today?", "ok.", "i hiked up a volcano!", "not much")
    assert capsys.readouterr().out == "i hiked up a volcano!\n"


async def test_a_telegram_bots_replies_are_scored_once_they_are_sent(mock, monkeypatch):
    telegram = pytest.importorskip("telegram", reason="python-telegram-bot is not installed")
    from telegram.request import BaseRequest

    example = SimpleNamespace(**runpy.run_path(str(FOLDER / "telegram_bot.py")))
    sent = []

    class Telegram(BaseRequest):
        """The service on the other side, in this process."""

        read_timeout = 1.0

        async def initialize(self): ...

        async def shutdown(self): ...

        async def do_request(self, url, method, request_data=None, **_):
            if url.endswith("/getMe"):
                result = {"id": 1, "is_bot": True, "first_name": "b", "username": "b"}
            else:
                asked = request_data.parameters
                if asked["text"] == "tell me more about trouble!":
                    return 400, json.dumps({"ok": False, "description": "no"}).encode()
                sent.append(asked)
                result = message(len(sent), asked["text"], is_bot=True)
            return 200, json.dumps({"ok": True, "result": result}).encode()

    def message(number, text, *, is_bot=False):
        sender = {"id": 1 if is_bot else 7, "is_bot": is_bot, "first_name": "x"}
        return {"message_id": number, "date": 0, "chat": {"id": 7, "type": "private"}, "text": text, "from": sender}

    told = []
    async with mock.async_client() as client, AsyncBackgroundScorer(client, told.append) as background:
        bot = example.ScoredBot("1:token", background, request=Telegram(), get_updates_request=Telegram())
        application = example.build(bot)
        await application.initialize()
        for number, text in enumerate(["hi there", "a volcano", "trouble", "the end"]):
            update = telegram.Update.de_json({"update_id": number, "message": message(number, text)}, bot)
            await application.process_update(update)
        await background.wait_until_idle()
        await application.shutdown()
    assert [each["text"] for each in sent] == [f"tell me more about {word}!" for word in ("there", "volcano", "end")]
    assert [each.tag for each in told] == [7, 7, 7]
    contexts = sorted((request.body["context"] for request in mock.requests), key=len)
    assert [len(each) for each in contexts] == [1, 3, 6]  # what could not be sent was not said
    assert contexts[2][:3] == [
        {"speaker": "user", "text": "hi there"},
        {"speaker": "system", "text": "tell me more about there!"},
        {"speaker": "user", "text": "a volcano"},
    ]
