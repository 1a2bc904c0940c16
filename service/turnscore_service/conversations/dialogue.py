"""What one conversation opened with and what was said since: turns become items, and their outcomes a tally."""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import ref

from turnscore_core.deadline import Deadline
from turnscore_core.errors import ScoringError
from turnscore_wire import ConversationOpening, Turn
from turnscore_wire.transcript import Transcript

from turnscore_service.scheduling.dialogue_tally import DialogueTally
from turnscore_service.scheduling.items import Item
from turnscore_service.scheduling.pipeline import ScoringPipeline
from turnscore_service.scheduling.request_checks import Roster, ask_again, check_opening
from turnscore_service.settings.service import Settings


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """A turn to score, with those before it."""

    context: Sequence[Turn]
    text: str
    deadline: Deadline


class OpenDialogue:
    """Belongs to one conversation. Keeps no model: those that served before were dropped if others took their place."""

    def __init__(self, opening: ConversationOpening, pipeline: ScoringPipeline, settings: Settings) -> None:
        """Raises TooLargeError or InvalidRequestError for an opening that this service cannot take."""
        self._opening = opening
        self._deadline_ms = opening.deadline_ms or settings.default_deadline_ms
        roster = pipeline.split.roster_for(opening.conversation, opening.context)
        self._asked = check_opening(opening, settings.limits, roster)
        self._pipeline, self._roster = ref(pipeline), ref(roster)
        self.transcript = Transcript(list(opening.context), len(opening.messages or opening.context))
        self.tally = DialogueTally(self._asked)

    @property
    def scorers(self) -> list[str]:
        """The names of the scorers that every system turn is scored with."""
        return list(self._asked)

    def latest(self, deadline_ms: int | None) -> SpokenTurn:
        """The turn that was said last, to be scored; in that time, else in the opening's."""
        *context, turn = self.transcript.turns
        return SpokenTurn(context, turn.text, Deadline.after_ms(deadline_ms or self._deadline_ms))

    def item_for(self, turn: SpokenTurn, pipeline: ScoringPipeline) -> tuple[Item, Roster]:
        """The turn as these models score it, and which of their versions do.

        Raises InvalidRequestError where they do not take the opening's options, which those before them took.
        """
        roster = self._choose_versions(turn, pipeline)
        return Item.of(self._opening, turn.context, turn.text, self._asked, turn.deadline, roster.versions), roster

    def _choose_versions(self, turn: SpokenTurn, pipeline: ScoringPipeline) -> Roster:
        """Others than before only after the user's first turn, or where other models are served.

        Where a split's versions do not take the opening's options, those that took them go on.
        """
        before = self._roster() if self._pipeline() is pipeline else None
        roster = pipeline.split.roster_for(self._opening.conversation, turn.context)
        if roster is before:
            return roster
        try:
            asked = ask_again(self._opening, self._asked, roster)
        except ScoringError:
            if before is not None:
                return before
            roster = pipeline.roster
            asked = ask_again(self._opening, self._asked, roster)
        self._asked, self._pipeline, self._roster = asked, ref(pipeline), ref(roster)
        return roster
