"""Scores judged dialogues by a running service, or by bundles in this process. Measures nothing."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from turnscore_client import AsyncTurnScoreClient

from turnscore_assessment.agreement.bundles import load_bundles, score_with_bundle
from turnscore_assessment.agreement.data import JudgedDialogue
from turnscore_assessment.agreement.scores import Advance, ScoredFile
from turnscore_assessment.agreement.service import score_with_service
from turnscore_assessment.errors import AgreementError

ShowProgress = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a progress bar with a title and a number of dialogues."""


@dataclass(frozen=True, kw_only=True)
class ScorerChoice:
    """Scorers by name. Without bundles, `open_client` opens the service that scores."""

    scorers: Sequence[str]
    bundles: Sequence[str]
    open_client: Callable[[], AsyncTurnScoreClient]
    concurrency: int


def score_dialogues(
    choice: ScorerChoice, dialogues: Sequence[JudgedDialogue], show_progress: ShowProgress
) -> list[ScoredFile]:
    """Each scorer's scores of the dialogues. AgreementError for a missing scorer, or one that fails on a dialogue."""
    names = list(dict.fromkeys(choice.scorers))
    if not choice.bundles:
        return asyncio.run(_ask_service(choice, names, dialogues, show_progress))
    loaded = load_bundles(choice.bundles)
    for name in names:
        if name not in loaded:
            raise AgreementError(f"no bundle of scorer {name!r} was given; given: {', '.join(loaded)}")
    scored = []
    for name in names:
        with show_progress(name, len(dialogues)) as advance:
            scored.append(score_with_bundle(loaded[name], dialogues, advance))
    return scored


async def _ask_service(
    choice: ScorerChoice, names: Sequence[str], dialogues: Sequence[JudgedDialogue], show_progress: ShowProgress
) -> list[ScoredFile]:
    async with choice.open_client() as client:
        with show_progress(", ".join(names), len(dialogues)) as advance:
            return await score_with_service(client, names, dialogues, choice.concurrency, advance)
