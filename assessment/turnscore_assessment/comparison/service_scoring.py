"""Scores unscored dialogues by a running service. Keeps no scores and no text."""

import asyncio
from collections.abc import Sequence

from turnscore_client import AsyncTurnScoreClient, TurnScoreError

from turnscore_assessment.comparison.score_file import ScoredDialogue, ScoreFile, read_reply
from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.service_client import CALLS_IN_FLIGHT, OpenClient


class UnscoredError(AssessmentError):
    """The service did not score a dialogue; the message says which and why."""


def score_file(found: ScoreFile, open_client: OpenClient, scorers: Sequence[str] | None) -> None:
    """Moves the file's unscored dialogues to the scored ones, in the file's order. UnscoredError names the line."""
    if not found.unscored:
        return
    answered = asyncio.run(_score(found, open_client, scorers))
    found.scored = sorted([*found.scored, *answered], key=lambda dialogue: dialogue.line)
    found.unscored = []


async def _score(found: ScoreFile, open_client: OpenClient, scorers: Sequence[str] | None) -> list[ScoredDialogue]:
    """Workers, as many as may be in flight, take the dialogues in turn; the first failure ends all of them."""
    waiting = iter(found.unscored)
    answered: list[ScoredDialogue] = []

    async def ask(client: AsyncTurnScoreClient) -> None:
        for dialogue in waiting:
            spoken = [turn for turn in dialogue.turns if turn.speaker == "user" or turn.text.strip()]
            try:
                reply = await client.score_dialogue(spoken, scorers=scorers)
            except TurnScoreError as error:
                raise UnscoredError(f"{found.path}, line {dialogue.line}: {error}") from None
            answered.append(read_reply(reply, dialogue))

    async with open_client() as client:
        askers = [asyncio.create_task(ask(client)) for _ in range(CALLS_IN_FLIGHT)]
        try:
            await asyncio.gather(*askers)
        finally:
            for asker in askers:
                asker.cancel()
            await asyncio.gather(*askers, return_exceptions=True)
    return answered
