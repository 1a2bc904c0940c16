"""A calibration's findings in sentences."""

from collections.abc import Iterator

from turnscore_exporters.calibration.job import Calibrated


def describe(made: Calibrated) -> Iterator[str]:
    """A line for each finding, warnings among them."""
    rated, threshold = made.rated, made.threshold
    bad = len(rated.good) - sum(rated.good)
    yield f"{len(rated.good)} rated turns, {sum(rated.good)} good and {bad} bad"
    if rated.sharing:
        yield (
            f"warning: {rated.sharing} turns share a dialogue with another; turns of a dialogue are alike, so the "
            "promise is weaker than it says (broken in 7 to 16 % of simulated draws of whole dialogues, instead of "
            "5 %): rate turns of different dialogues"
        )
    if made.choice is not None:
        yield f"value: {made.choice.way}"
        for way, loss in sorted(made.choice.losses.items(), key=lambda each: each[1]):
            yield f"  log loss {loss:.4f} over folds of dialogues: {way}"
        if not made.choice.keeps_order:
            yield "note: percentiles of the value are now among the rated turns, as the heads have new weights"
    yield (
        f"threshold {threshold.value:.4f}, of {made.threshold_turns} turns: calls at most "
        f"{threshold.false_alarm_rate:.1%} of good turns low, with {threshold.confidence:.0%} confidence"
    )
    if threshold.recall is None:
        yield "warning: no turn is bad, so what the threshold will find is unknown"
    else:
        found = threshold.recall
        yield f"finds {found.share:.0%} of bad turns ({found.low:.0%} to {found.high:.0%}, of {found.turns})"
