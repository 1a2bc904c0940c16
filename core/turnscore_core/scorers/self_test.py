"""Self-test: a loaded graph scores the bundle's known turns. Refuses one that computes otherwise than when exported."""

from collections.abc import Iterator, Sequence

from turnscore_models import Bundle, GraphVariant, MismatchedGraphError, SelfTestTurn
from turnscore_wire import Turn

from turnscore_core.scorers.scorer import RawScore, Scorer, TurnToScore


def read_turn(each: SelfTestTurn) -> TurnToScore:
    """The turn as it is scored: by the bundle's default options."""
    return TurnToScore([Turn(speaker=speaker, text=text) for speaker, text in each.context], each.response)


def score_turns(scorer: Scorer, turns: Sequence[TurnToScore]) -> list[RawScore]:
    """The turns' scores, in order, out of one batch."""
    packs = scorer.encode(turns)
    places = [place for pack in packs for place in pack.answers]
    found = dict(zip(places, scorer.score(packs), strict=True))
    return [found[place] for place in range(len(turns))]


def run_self_test(bundle: Bundle, variant: GraphVariant, scorer: Scorer) -> None:
    """Warms the runtime up and proves that this machine computes what the exporting machine did.

    Raises MismatchedGraphError where the graph does not run, or where the value or a detail of a turn is missing, is
    no number, or is off by more than the tolerance.
    """
    test = bundle.self_test()
    where = f"bundle {bundle.manifest.reference}: {bundle.manifest.graphs[variant].file}"
    try:
        scores = score_turns(scorer, [read_turn(each) for each in test.turns])
    except Exception as error:
        raise MismatchedGraphError(f"{where} does not run: {error}") from error
    own = test.tolerances.get(variant)
    tolerance = bundle.manifest.graphs[variant].parity_tolerance if own is None else own
    for place, (turn, score) in enumerate(zip(test.turns, scores, strict=True)):
        for name, expected, found in _figures(turn, None if own is None else variant, score):
            if expected is None or found is None or not abs(found - expected) <= tolerance:
                raise MismatchedGraphError(
                    f"{where} gives self-test turn {place} the {name} {_shorten(found)}, "
                    f"{'its checkpoint' if own is None else 'when it was exported'} {_shorten(expected)}; "
                    f"the tolerance is {tolerance:g}"
                )


def _figures(
    turn: SelfTestTurn, variant: GraphVariant | None, score: RawScore
) -> Iterator[tuple[str, float | None, float | None]]:
    """Name, expected and found, of everything that is compared; without a variant, the checkpoint's value alone."""
    if variant is None:
        yield "value", turn.value, score.value
        return
    expected = turn.graphs[variant]
    yield "value", expected.value, score.value
    for name, value in expected.details.items():
        yield name, value, score.details.get(name)


def _shorten(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4f}"
