"""A plan as a table for a terminal and as JSON. Computes nothing."""

from collections.abc import Iterator

from rich.table import Table

from turnscore_assessment.power.planning import Plan, PowerPoint


def make_power_table(plan: Plan) -> Table:
    table = Table("workers", "dialogues", "power", "Monte-Carlo error", "seen the wrong way round")
    for point in plan.curve:
        table.add_row(
            str(point.workers),
            str(count_dialogues(plan, point)),
            f"{point.power:.1%}",
            f"{point.error:.1%}",
            f"{point.wrong:.1%}",
        )
    return table


def count_dialogues(plan: Plan, point: PowerPoint) -> int:
    """Dialogues of both systems together."""
    return 2 * plan.dialogues * point.workers


def list_remarks(plan: Plan) -> Iterator[str]:
    """Sentences on the plan and how it was made."""
    kind = "workers" if plan.is_paired else "workers of each system"
    aim = f"to see a difference of {plan.difference:.3g} in {plan.power:.0%} of studies at level {plan.level:g}"
    if plan.needed is None:
        yield f"more {kind} than can be simulated are needed {aim}"
    else:
        yield (
            f"{plan.needed} {kind} ({plan.needed_low} to {plan.needed_high} for the Monte-Carlo error), "
            f"{plan.dialogues} dialogue{'s' if plan.dialogues > 1 else ''} of each system by each, {aim}"
        )
    if plan.false_alarms is not None:
        alarms = plan.false_alarms.power + plan.false_alarms.wrong
        yield f"without a difference, {alarms:.1%} of studies of that size see one"
    workers = " and ".join(map(str, sorted(set(plan.pilot_workers))))
    yield (
        f"pilot: {workers} workers, difference {plan.pilot_difference:.3g} (standard error {plan.pilot_error:.2g}), "
        f"standard deviation {plan.spread:.3g}; {plan.simulations} simulated studies, workers and their dialogues "
        "drawn with replacement, two-sided t-test of workers' differences"
    )
    yield from plan.notes
