"""A Telegram bot whose every reply is scored in the background: the reply is never late, and never lost, for it.

    TELEGRAM_TOKEN=... python telegram_bot.py

python-telegram-bot was chosen because it is a widely used and maintained framework for chatbots, works with asyncio,
and needs only httpx, which turnscore-client brings too.

Needs `pip install ./clients 'python-telegram-bot>=22,<23'` and a service at TURNSCORE_URL (http://localhost:3000).
"""

import os
from collections import OrderedDict, deque
from typing import Any

from telegram import Message, Update
from telegram.ext import Application, ContextTypes, ExtBot, MessageHandler, filters
from turnscore_client import AsyncBackgroundScorer, AsyncTurnScoreClient, Scored

MAX_CHATS, MAX_TURNS = 10_000, 20


class Chats:
    """The latest turns of each chat, oldest first; the chats that have been silent longest are forgotten."""

    def __init__(self) -> None:
        self._turns: OrderedDict[int | str, deque[tuple[str, str]]] = OrderedDict()

    def add(self, chat: int | str, speaker: str, text: str) -> list[tuple[str, str]]:
        """Notes a turn; returns those before it."""
        turns = self._turns.setdefault(chat, deque(maxlen=MAX_TURNS))
        self._turns.move_to_end(chat)
        if len(self._turns) > MAX_CHATS:
            self._turns.popitem(last=False)
        before = list(turns)
        turns.append((speaker, text))
        return before


class ScoredBot(ExtBot[None]):
    """The middleware: notes what is said in each chat, and hands over what the bot says once it has been sent."""

    def __init__(self, token: str, background: AsyncBackgroundScorer, **given: Any) -> None:
        super().__init__(token, **given)
        self._background = background
        self._chats = Chats()

    async def send_message(self, chat_id: int | str, text: str, *args: Any, **given: Any) -> Message:
        """Sends, and then has the turn scored; `reply_text` and its like come here too."""
        message = await super().send_message(chat_id, text, *args, **given)
        self._background.submit(text, self._chats.add(chat_id, "system", text), tag=chat_id)
        return message

    async def observe(self, update: Update, _: ContextTypes.DEFAULT_TYPE) -> None:
        """A handler that notes what a person says and answers nothing."""
        if update.message is not None and update.message.text:
            self._chats.add(update.message.chat_id, "user", update.message.text)


async def answer(update: Update, _: ContextTypes.DEFAULT_TYPE) -> None:
    """The bot. Yours is better."""
    if update.message is not None and update.message.text:
        await update.message.reply_text(f"tell me more about {update.message.text.split()[-1]}!")


def show(scored: Scored) -> None:
    """What is done with the scores; dialogue text stays where it was."""
    scores = scored.reply.scores if scored.reply is not None else {}
    shown = scored.error or {name: score.percentile for name, score in scores.items()}
    print(f"chat {scored.tag}: {shown}", flush=True)


def build(bot: ScoredBot) -> Application[Any, Any, Any, Any, Any, Any]:
    """The application around the bot: the observer first, then the bot's own handlers."""
    application = Application.builder().bot(bot).build()
    # handlers of a lower group come first; every group gets the update
    application.add_handler(MessageHandler(filters.TEXT, bot.observe), group=-1)
    application.add_handler(MessageHandler(filters.TEXT & ~filters.COMMAND, answer))
    return application


def main() -> None:
    """Runs until it is interrupted."""
    client = AsyncTurnScoreClient(timeout_seconds=2.0)
    background = AsyncBackgroundScorer(client, show)
    application = build(ScoredBot(os.environ["TELEGRAM_TOKEN"], background))

    async def open_background(_: object) -> None:
        await background.__aenter__()

    async def close_background(_: object) -> None:
        await background.aclose()
        await client.aclose()

    application.post_init, application.post_shutdown = open_background, close_background
    application.run_polling()


if __name__ == "__main__":
    main()
