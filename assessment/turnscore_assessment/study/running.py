"""A running study: a worker's actions, one method each. Knows no HTTP; the database keeps the order."""

import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Any

from turnscore_assessment.study import conversations, workers
from turnscore_assessment.study.chatbots import ChatbotError, Chatbots
from turnscore_assessment.study.conversations import hash_consent, show_standing, show_study
from turnscore_assessment.study.database import StudyDatabase
from turnscore_assessment.study.page_requests import RefusedError, StudyRefusal, check_ratings, check_text
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.recordings import Recordings
from turnscore_assessment.study.workers import Worker, parse_link

_log = logging.getLogger(__name__)


class RunningStudy:
    """A study with its database and its systems. Every method raises RefusedError for a forbidden action."""

    def __init__(
        self,
        plan: StudyPlan,
        database: StudyDatabase,
        chatbots: Chatbots,
        recordings: Recordings,
        *,
        on_rating: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
        generator: random.Random | None = None,
    ) -> None:
        self.plan = plan
        self._database = database
        self._chatbots = chatbots
        self._recordings = recordings
        self._on_rating = on_rating
        self._now = now
        self._generator = generator or secrets.SystemRandom()

    async def identify(self, link: str) -> Worker:
        """The worker of the link."""
        parsed = parse_link(link)
        if parsed is None:
            raise RefusedError(StudyRefusal.UNKNOWN_LINK)
        return await self._database.read(workers.find_worker, self._database.study_id, parsed)

    async def show(self, worker: Worker) -> dict[str, Any]:
        """The study, and where the worker stands."""
        standing = await self._database.read(conversations.find_standing, worker.id)
        recorded = None
        if standing.open is not None and standing.open.recorded is not None:
            recorded = self._recordings.find(standing.open.system, standing.open.recorded)
            if recorded is None:
                _log.error("system %r: dialogue %r is gone", standing.open.system, standing.open.recorded)
                raise RefusedError(StudyRefusal.BROKEN)
        return {"study": show_study(self.plan), **show_standing(self.plan, worker, standing, recorded)}

    async def show_again(self, worker: Worker) -> dict[str, Any]:
        """The study and the worker's standing after an action, which may have ended the worker's study."""
        return await self.show(await self._database.read(workers.read_worker, worker.id))

    async def agree(self, worker: Worker, consent_hash: str) -> None:
        """Records the worker's agreement to the text with that hash, and assigns dialogues."""
        if consent_hash != hash_consent(self.plan):
            raise RefusedError(StudyRefusal.TEXT_CHANGED)
        await self._database.run(
            workers.agree,
            self._database.study_id,
            worker.id,
            self.plan,
            self._recordings.names,
            consent_hash,
            self._now(),
            self._generator,
        )

    async def begin(self, worker: Worker) -> None:
        """Opens the worker's next dialogue, unless one is open."""
        _check_agreed(worker)
        await self._database.run(conversations.open_next, self._database.study_id, worker.id, self.plan, self._now())

    async def say(self, worker: Worker, dialogue_id: str, number: int, text: str) -> str:
        """The system's reply to the worker's message; a repeated message gets the same reply."""
        _check_agreed(worker)
        dialogue = await self._database.run(
            conversations.take_message,
            worker.id,
            dialogue_id,
            number,
            check_text(text, self.plan),
            self.plan,
            self._now(),
        )
        if len(dialogue.texts) > 2 * number + 1:
            return dialogue.texts[2 * number + 1]
        try:
            reply = await self._chatbots.reply(self.plan.find_system(dialogue.system), dialogue.texts, dialogue_id)
        except ChatbotError as error:
            _log.warning("system %r gave no reply: %s", dialogue.system, error)
            await self._database.run(conversations.note_failure, dialogue_id)
            raise RefusedError(StudyRefusal.NO_REPLY) from None
        except Exception:
            await self._database.run(conversations.note_failure, dialogue_id)  # the message can be asked again at once
            raise
        await self._database.run(conversations.store_reply, dialogue_id, number, reply, self._now())
        return reply

    async def rate(self, worker: Worker, dialogue_id: str, ratings: dict[str, float]) -> None:
        """Stores the ratings of a dialogue and ends it."""
        _check_agreed(worker)
        checked = check_ratings(ratings, self.plan)
        await self._database.run(conversations.rate, worker.id, dialogue_id, checked, self.plan, self._now())
        self._on_rating()

    async def give_up(self, worker: Worker, dialogue_id: str) -> None:
        """Ends a dialogue whose chatbot fails again and again, unrated."""
        _check_agreed(worker)
        await self._database.run(conversations.give_up, worker.id, dialogue_id, self._now())

    async def leave(self, worker: Worker) -> None:
        """Deletes everything that the worker said and rated."""
        await self._database.run(workers.leave, worker.id, self._now())
        await self._database.erase()


def _check_agreed(worker: Worker) -> None:
    if worker.consent_hash is None:
        raise RefusedError(StudyRefusal.NOT_AGREED)
