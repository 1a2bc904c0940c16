"""Makes a design: who is asked what, in which order, under which blind names. Reproducible by seed; writes no file.

A rater sees a dialogue once. Each dialogue is judged equally often, or once more or less.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from turnscore_assessment.designs import form
from turnscore_assessment.designs.form import LARGEST_TUPLE, MOST_ITEMS, DesignItem, DesignKind, DesignScale, DesignSpec
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.figures import Integers

# Tuples that are evened together; more are even enough, and the work grows with the square.
MOST_AT_ONCE = 2000
FIRST = 1e9  # Cost of an appearance, where a meeting costs 1: more than all meetings together.


def deal_tuples(units: int, size: int, count: int, generator: np.random.Generator) -> list[list[int]]:
    """`count` tuples of `size` different units, each in display order. ValueError for a bad size."""
    if not 2 <= size <= units:
        raise ValueError(f"a tuple must have 2 to {units} units, not {size}")
    meetings = np.zeros((units, units), dtype=np.intp)
    appearances = np.zeros(units, dtype=np.intp)
    dealt = []
    for _ in range(count):  # of the units dealt least often, those that met the tuple's others least
        chosen: list[int] = []
        for _ in range(size):
            costs = appearances * FIRST + meetings[chosen].sum(axis=0) + generator.random(units)
            costs[chosen] = np.inf
            chosen.append(int(np.argmin(costs)))
        _note(meetings, chosen, 1)
        appearances[chosen] += 1
        dealt.append(chosen)
    if size < units and count <= MOST_AT_ONCE:
        _swap_evenly(dealt, meetings, generator)
    return balance_positions(dealt, generator)


def measure_balance(tuples: Sequence[Sequence[int]], units: int) -> dict[str, tuple[int, int]]:
    """How evenly units were dealt over all tuples: the fewest and the most of each count.

    For tuples of one unit there are no meetings; `in_position` is how often a unit stands in one position.
    """
    meetings = np.zeros((units, units), dtype=np.intp)
    positions = np.zeros((units, max(map(len, tuples))), dtype=np.intp)
    for each in tuples:
        meetings[np.ix_(each, each)] += 1
        positions[each, range(len(each))] += 1
    appearances = positions.sum(axis=1)
    between = meetings[np.triu_indices(units, 1)] if units > 1 else np.zeros(1, dtype=np.intp)
    counts = {"appearances": appearances, "meetings": between, "in_position": positions}
    return {name: (int(each.min()), int(each.max())) for name, each in counts.items()}


def balance_positions(tuples: Sequence[Sequence[int]], generator: np.random.Generator) -> list[list[int]]:
    """The same tuples, reordered so that each unit stands in each position equally often, or once more or less.

    A unit is cut into parts of at most as many appearances as there are positions; colouring the graph of tuples and
    parts with the positions then gives each part every position once. Of very many tuples, runs of a multiple of as
    many as there are units are balanced by themselves: there every unit is dealt equally often, so sums stay balanced.
    """
    if len(tuples) > MOST_AT_ONCE:
        units = max(map(max, tuples)) + 1
        step = units * max(1, MOST_AT_ONCE // (4 * units))
        parts = [tuples[start : start + step] for start in range(0, len(tuples), step)]
        return [ordered for part in parts for ordered in balance_positions(part, generator)]
    size = max(map(len, tuples))
    seen: dict[int, int] = defaultdict(int)
    at_tuple: list[dict[int, tuple[int, int]]] = [{} for _ in tuples]  # position -> part
    at_part: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # position -> tuple
    for place in generator.permutation(len(tuples)).tolist():
        positions = generator.permutation(size).tolist()
        for unit in generator.permutation(tuples[place]).tolist():
            part = (unit, seen[unit] // size)
            seen[unit] += 1
            # The appearance gets a position that is free at both ends; if needed, two are exchanged along a path.
            free_here = next(p for p in positions if p not in at_tuple[place])
            free_there = next(p for p in positions if p not in at_part[part])
            path: list[tuple[int, tuple[int, int], int]] = []
            here, wanted, other = part, free_here, free_there
            while wanted in at_part[here]:
                through = at_part[here][wanted]
                path.append((through, here, wanted))
                if other not in at_tuple[through]:
                    break
                here = at_tuple[through][other]
                path.append((through, here, other))
            for through, end, position in path:
                del at_tuple[through][position], at_part[end][position]
            for through, end, position in path:
                exchanged = free_there if position == free_here else free_here
                at_tuple[through][exchanged], at_part[end][exchanged] = end, through
            at_tuple[place][free_here], at_part[part][free_here] = part, place
    return [[part[0] for _, part in sorted(positions.items())] for positions in at_tuple]


def _note(meetings: Integers, chosen: Sequence[int], step: int) -> None:
    meetings[np.ix_(chosen, chosen)] += step
    meetings[chosen, chosen] -= step


def _swap_evenly(dealt: list[list[int]], meetings: Integers, generator: np.random.Generator) -> None:
    """Exchanges units of two tuples while that makes meetings more even; appearances stay as they are."""
    size = len(dealt[0])
    # Rounds of swaps. Chosen: 10 units in 45 tuples of 4 meet evenly after some 500; half a second of work at most.
    proposals = generator.integers(0, [len(dealt), len(dealt), size, size], (60_000, 4)).tolist()
    for number, (left, right, i, j) in enumerate(proposals):
        if number % 500 == 0 and np.ptp(meetings[np.triu_indices(len(meetings), 1)]) <= 1:
            return
        x, y = dealt[left][i], dealt[right][j]
        if x == y or x in dealt[right] or y in dealt[left]:
            continue
        others = [unit for unit in dealt[left] if unit != x], [unit for unit in dealt[right] if unit != y]
        if _gain(meetings, x, y, *others) >= 0:
            for each in (left, right):
                _note(meetings, dealt[each], -1)
            dealt[left][i], dealt[right][j] = y, x
            for each in (left, right):
                _note(meetings, dealt[each], 1)


def _gain(meetings: Integers, x: int, y: int, with_x: Sequence[int], with_y: Sequence[int]) -> int:
    """Half of how much the sum of squared meetings falls if x and y exchange places."""
    removed = sum(int(meetings[x, z]) for z in with_x) + sum(int(meetings[y, z]) for z in with_y)
    added = sum(int(meetings[y, z]) for z in with_x) + sum(int(meetings[x, z]) for z in with_y)
    shared = len(set(with_x) & set(with_y))
    return removed - added - len(with_x) - len(with_y) + 2 * shared


ID_CHARACTERS = 6  # Hexadecimal digits of a blind id. Chosen: 16 million ids for at most 20,000 items.
CONTINUOUS_LOW, CONTINUOUS_HIGH = 0.0, 100.0

Blocks = Mapping[str, Mapping[str, DesignItem]]  # Items by dialogue and system.


class DesignError(AssessmentError):
    """These items do not allow the design; the message says why."""


def make_design(items: Sequence[DesignItem], spec: DesignSpec) -> form.Design:
    """The sheets' content and its key. Raises DesignError or TooFewError naming what is missing."""
    _check_spec(spec)
    generator = np.random.default_rng(spec.seed)
    blocks, references = _sort_items(items, spec)
    systems = sorted({system for block in blocks.values() for system in block})
    if len(systems) < 2:
        raise TooFewError(f"items: a design compares two systems at least; there is {', '.join(systems) or 'none'}")
    if len(systems) > form.MOST_SYSTEMS:
        raise DesignError(f"items: there are {len(systems)} systems; at most {form.MOST_SYSTEMS} can be compared")
    order = [str(name) for name in generator.permutation(sorted(blocks))]
    asked = _deal_dialogues(order, spec)
    shown = _deal_options(asked, blocks, systems, spec, generator)
    names = _name_blindly(blocks, generator)
    questions = [
        form.DesignQuestion(
            rater=rater,
            question=number,
            dialogue=dialogue,
            options=tuple(names[dialogue, system] for system in options),
            standard=_find_standard(references.get(dialogue), spec),
        )
        for (rater, number, dialogue), options in zip(_number(asked, spec, generator), shown, strict=True)
    ]
    places = {system: place for place, system in enumerate(systems)}
    key = form.DesignKey(
        study=spec.study,
        design=spec.kind,
        criteria=tuple(spec.criteria),
        scale=_choose_scale(spec),
        seed=spec.seed,
        items={
            name: form.KeyedItem(dialogue=dialogue, system=system) for (dialogue, system), name in sorted(names.items())
        },
        questions=tuple(sorted(questions, key=lambda each: (each.rater, each.question))),
        balance=measure_balance([[places[system] for system in options] for options in shown], len(systems)),
    )
    texts = {name: blocks[dialogue][system] for (dialogue, system), name in names.items()}
    return form.Design(key=key, texts=texts, references=references if spec.kind.is_magnitude else {})


def _check_spec(spec: DesignSpec) -> None:
    names = [criterion.name for criterion in spec.criteria]
    if not 1 <= len(names) <= form.MOST_CRITERIA:
        raise DesignError(f"criterion: there are {len(names)}, not 1 to {form.MOST_CRITERIA}")
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise DesignError(f"criterion: two are called {twice[0]!r}")
    negative = [criterion.name for criterion in spec.criteria if criterion.direction == "negative"]
    if spec.kind.is_choice and negative:
        raise DesignError(
            f"criterion: {negative[0]!r} is negative, and {spec.kind} asks for the better option: turn it round"
        )
    if not 1 <= len(spec.study) <= form.LONGEST_NAME:
        raise DesignError(f"study: must have 1 to {form.LONGEST_NAME} characters")


def _sort_items(
    items: Sequence[DesignItem], spec: DesignSpec
) -> tuple[dict[str, dict[str, DesignItem]], dict[str, DesignItem]]:
    """The items to judge by dialogue and system, and the references, which magnitude estimation does not judge."""
    if len(items) > MOST_ITEMS:
        raise DesignError(f"items: there are more than {MOST_ITEMS:,}")
    blocks: dict[str, dict[str, DesignItem]] = defaultdict(dict)
    references: dict[str, DesignItem] = {}
    for item in items:
        if item.reference and item.dialogue in references:
            raise DesignError(f"items: dialogue {item.dialogue!r} has two references")
        if item.reference:
            references[item.dialogue] = item
        if item.reference and spec.kind.is_magnitude:
            continue
        if item.system in blocks[item.dialogue]:
            raise DesignError(f"items: dialogue {item.dialogue!r} has two items of system {item.system!r}")
        blocks[item.dialogue][item.system] = item
    blocks = {dialogue: block for dialogue, block in blocks.items() if block}
    for dialogue in blocks if spec.kind.is_magnitude else ():
        if dialogue not in references:
            raise DesignError(f"items: dialogue {dialogue!r} has no reference, which {spec.kind} needs")
        if spec.kind is DesignKind.BIASED_MAGNITUDE and references[dialogue].standard is None:
            raise DesignError(
                f"items: the reference of dialogue {dialogue!r} has no `standard`, which {spec.kind} needs"
            )
    return blocks, references


def _deal_dialogues(order: Sequence[str], spec: DesignSpec) -> list[tuple[int, str]]:
    """(rater, dialogue) of every question; a rater's dialogues are consecutive in an endless round over all."""
    each = spec.per_rater if spec.per_rater is not None else len(order)
    if each > len(order):
        raise DesignError(f"per-rater: {each} dialogues, but there are {len(order)}, and a rater sees each once")
    if spec.raters * each > form.MOST_QUESTIONS:
        raise DesignError(f"raters: {spec.raters} times {each} questions are more than {form.MOST_QUESTIONS:,}")
    return [(place // each, order[place % len(order)]) for place in range(spec.raters * each)]


def _deal_options(
    asked: Sequence[tuple[int, str]],
    blocks: Blocks,
    systems: Sequence[str],
    spec: DesignSpec,
    generator: np.random.Generator,
) -> list[list[str]]:
    """The systems of every question, in the order in which they are shown."""
    places = {system: place for place, system in enumerate(systems)}
    if not spec.kind.is_choice:
        rows = [sorted(places[system] for system in blocks[dialogue]) for _, dialogue in asked]
        _check_shown(sum(map(len, rows)))
        return [[systems[place] for place in row] for row in balance_positions(rows, generator)]
    size = 2 if spec.kind is DesignKind.PAIRWISE else min(spec.tuple_size, len(systems))
    for dialogue, block in blocks.items():
        missing = [system for system in systems if system not in block]
        if missing:
            raise DesignError(
                f"items: dialogue {dialogue!r} has nothing of system {missing[0]!r}, which {spec.kind} needs"
            )
    if not 2 <= size <= LARGEST_TUPLE:
        raise DesignError(f"tuple-size: {spec.tuple_size}; a question compares 2 to {LARGEST_TUPLE} options")
    _check_shown(size * len(asked))
    dealt = deal_tuples(len(systems), size, len(asked), generator)
    return [[systems[place] for place in dealt[row]] for row in generator.permutation(len(dealt)).tolist()]


def _check_shown(options: int) -> None:
    if options > form.MOST_SHOWN:
        raise DesignError(f"raters: all sheets together would show more than {form.MOST_SHOWN:,} options")


def _number(
    asked: Sequence[tuple[int, str]], spec: DesignSpec, generator: np.random.Generator
) -> list[tuple[str, int, str]]:
    """(rater's name, page number, dialogue): each rater has an order of pages."""
    width = len(str(spec.raters))
    each = len(asked) // spec.raters
    pages = np.concatenate([generator.permutation(each) + 1 for _ in range(spec.raters)]).tolist()
    return [(f"r{rater + 1:0{width}d}", page, dialogue) for (rater, dialogue), page in zip(asked, pages, strict=True)]


def _name_blindly(blocks: Blocks, generator: np.random.Generator) -> dict[tuple[str, str], str]:
    """A random id for every item, which reveals nothing. It begins with a letter, so spreadsheets leave it alone."""
    items = [(dialogue, system) for dialogue in sorted(blocks) for system in sorted(blocks[dialogue])]
    numbers = generator.choice(16**ID_CHARACTERS, len(items), replace=False).tolist()
    return {item: f"i{number:0{ID_CHARACTERS}x}" for item, number in zip(items, numbers, strict=True)}


def _find_standard(reference: DesignItem | None, spec: DesignSpec) -> float | None:
    if reference is None or not spec.kind.is_magnitude:
        return None
    return reference.standard if spec.kind is DesignKind.BIASED_MAGNITUDE else spec.standard


def _choose_scale(spec: DesignSpec) -> DesignScale | None:
    if spec.kind.is_choice:
        return None
    if spec.kind.is_magnitude:
        return DesignScale(low=0, high=form.LARGEST_MAGNITUDE)
    if spec.kind is DesignKind.LIKERT:
        return DesignScale(low=1, high=spec.points, whole=True, low_end="lowest", high_end="highest")
    return DesignScale(low=CONTINUOUS_LOW, high=CONTINUOUS_HIGH, low_end="lowest", high_end="highest")
