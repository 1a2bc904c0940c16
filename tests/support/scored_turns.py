"""Scores as writers get them: of a turn, and of the session it belongs to."""

from turnscore_client import Scored
from turnscore_client.integrations import TurnIds
from turnscore_wire import DialogueAggregate, Score, ScoreReply, Timing, TokenCount

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def scored(ids: TurnIds, value: float = 0.25) -> Scored:
    """What an integration hands to a writer."""
    score = Score(
        value=value,
        percentile=12.0,
        details={},
        model="quality:1.0.0",
        tokens=TokenCount(used=3, dropped=0),
        cached=False,
        warnings=["repeats_user"],
        label="low",
    )
    timing = Timing(total=1, tokenize=0, queue=0, inference=1)
    return Scored(ids, ScoreReply(request_id="a", scores={"quality": score}, timing_ms=timing), None)


AGGREGATES = {
    "quality": DialogueAggregate(
        mean=0.5, min=0.25, max=0.75, turns=2, percentile_mean=40.0, percentile_min=12.0, percentile_max=68.0
    )
}
