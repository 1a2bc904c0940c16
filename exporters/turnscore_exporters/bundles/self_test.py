"""A bundle's self-test: known turns and its graphs' outputs for them, so that loading can compare.

Each turn is a conversation of our own text whose last text is the response; before it system and user take turns, the
user last. Refuses a graph that scores all of them alike: nothing could then show that it is wrong.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.loaded_scorer import find_scorer, load_scorer, read_turn, score_in_one_batch
from turnscore_core.scorers.scorer import PERCENTILE_SUFFIX, RawScore, TurnToScore
from turnscore_models import (
    Bundle,
    GraphOutput,
    GraphVariant,
    Manifest,
    SelfTest,
    SelfTestTurn,
    copy_bundle,
    write_bundle,
)
from turnscore_models.manifest import VERSION_PATTERN
from turnscore_wire import Speaker, Turn

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.graphs.fp16 import examined_graph
from turnscore_exporters.json_files import write_json

Texts = tuple[str, ...]

# Greetings, dull and lively replies, numbers, other scripts, markup, no context, long text.
_ENGAGEMENT: tuple[Texts, ...] = (
    ("hi, what did you do today?", "i hiked up a volcano and nearly lost my hat. ever been on one?"),
    ("hi, what did you do today?", "ok."),
    ("do you like music?", "I don't know."),
    ("do you like music?", "Very much! I play the cello in a small orchestra. Which instrument would you learn?"),
    ("how much is the ticket to Turin?", "It's 42.50 euros, and the 9:15 train still has seats by the window."),
    ("any plans for the weekend?", "We might paint the kitchen yellow, if my brother remembers to bring the ladder."),
    ("are you a robot?", "no no no no no no"),
    ("Good evening! What would you like to talk about?",),
    ("my dog died yesterday", "I am so sorry. How long had the two of you been together?"),
    ("was machst du heute?", "Ich gehe schwimmen, und du?"),
    ("tell me a story 🙂", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 4),
    ("what is 2 + 2?", "<b>4</b>"),
)

# Fitting, rude, dull, broken and repeated responses, no context, other scripts, markup, a long context and response.
_SENTIMENT_STOP: tuple[Texts, ...] = (
    ("i baked bread this morning", "That sounds lovely! What kind was it?"),
    ("i baked bread this morning", "Nobody wants to hear about your bread."),
    ("do you have pets?", "Two cats. And you?", "a very old dog", "Aw, what is the old dog's name?"),
    ("do you have pets?", "Two cats. And you?", "a very old dog", "Two cats. And you?"),
    ("which train goes to Turin?", "The 9:15, from platform 4. Shall I look for the fare?"),
    ("which train goes to Turin?", "platform platform train is the of Turin when"),
    ("tell me something", "ok."),
    ("Good evening! What would you like to talk about?",),
    ("was machst du heute?", "Ich gehe schwimmen, und du? 🙂"),
    ("what is 2 + 2?", "<b>4</b>"),
    ("well " * 60, "and then " * 30, "go on", "I will."),
    ("tell me a story", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 8),
)

# Chat, a bare answer, no context, emoji and another script, markup, a long turn.
# The turns that an export also scores the published way, which takes a pass for every follow-up.
FED_VERIFIED: tuple[Texts, ...] = (
    ("hi, seen any good films?", "yes, a heist film set in Lisbon. do you like those?"),
    ("hi, seen any good films?", "yes, a heist film set in Lisbon. do you like those?", "i love them", "ok."),
    ("Good evening! What would you like to talk about?",),
    (
        "tell me a story 🙂",
        "¿Por qué no? 从前有一座山 🏔️🏔️",
        "what?",
        "<b>Once</b> upon a time  there was\ta lighthouse.",
    ),
    ("my dog died yesterday", "no no no no no no " * 6),
)

# With the starter model these lie between its 6th and its 98th percentile; those above between its 19th and its 85th.
_FED_SPREAD: tuple[Texts, ...] = (
    ("was machst du?", "ich weiss es nicht"),
    ("how was your day?", "why do you care"),
    ("can you help me?", "Sorry, I did not understand that. Could you say it again?"),
    ("my tooth hurts", "haha that is so funny"),
    ("i moved to a new city last week", "that is so cool! i love new places. how do you like it?"),
    ("do you like cats?", "i like cats", "me too", "i like cats", "you said that", "i like cats"),
    ("I AM SO ANGRY", "PLEASE CALM DOWN SIR"),
    ("what time is it?", "1 2 3 4 5 6 7 8 9 10"),
)

# Fitting, off topic, repeated, rude, dull, garbled, contradicting, no context, another script, markup, several windows.
_QUALITY: tuple[Texts, ...] = (
    ("hi, what did you do today?", "i went for a swim in the lake, it was freezing! and you?"),
    ("i baked bread this morning", "That sounds lovely! What kind was it?"),
    ("i baked bread this morning", "The train to Turin leaves from platform 4."),
    ("i baked bread this morning", "i baked bread this morning"),
    ("my dog died yesterday", "haha that's great! congratulations!"),
    ("my dog died yesterday", "I am so sorry. How long had the two of you been together?"),
    ("do you have pets?", "I have two cats.", "what are their names?", "I never had any pets, I hate cats."),
    ("tell me something", "ok."),
    ("which train goes to Turin?", "platform platform train is the of Turin when"),
    ("are you a robot?", "Shut up, you idiot."),
    ("Good evening! What would you like to talk about?",),
    ("was machst du heute?", "Ich gehe schwimmen, und du? 🙂"),
    ("what is 2 + 2?", "<b>4</b>"),
    ("tell me a story", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 12),
)

# Pleased, frustrated, correcting, asking again, lost, leaving, asking for a person, rude, brief, long, first turns.
_REACTION: tuple[Texts, ...] = (
    ("The museum opens at ten.", "great, that helps a lot, thank you!"),
    ("The museum opens at ten.", "that is not what i asked, are you even listening?"),
    ("You live in Rome, right?", "no, i said i live in Turin"),
    ("when does it open?", "It is a museum.", "yes but WHEN does it open?"),
    ("The flux must be reversed first.", "sorry, what does that mean?"),
    ("Shall I tell you more about cats?", "no thanks, bye"),
    ("I cannot find your order.", "let me talk to a human please"),
    ("Do you like pizza?", "shut up you stupid machine"),
    ("Do you like pizza?", "ok"),
    ("I hiked up a volcano last year!", "wow, which one? i have always wanted to see lava from close by"),
    ("hello, who are you?",),
    ("Wie geht es dir?", "ganz gut, und dir? 🙂"),
    ("Tell me about your day.", "i woke up late and then i missed the bus and then it rained " * 8),
)

# The same, near and far; short and long; no context, another script, markup.
_ENCODER: tuple[Texts, ...] = (
    ("i baked bread this morning", "i baked bread this morning"),
    ("i baked bread this morning", "This morning I made a loaf in my own oven."),
    ("i baked bread this morning", "The train to Turin leaves from platform 4."),
    ("do you have pets?", "Two cats. And you?"),
    ("my dog died yesterday", "I am so sorry. How long had the two of you been together?"),
    ("my dog died yesterday", "ok."),
    ("Good evening! What would you like to talk about?",),
    ("was machst du heute?", "Ich gehe schwimmen, und du? 🙂"),
    ("what is 2 + 2?", "<b>4</b>"),
    ("how much is the ticket to Turin?", "It's 42.50 euros, and the 9:15 train still has seats by the window."),
    ("tell me a story", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 12),
    ("well " * 60, "and then " * 30),
)

SELF_TEST_TEXTS: dict[str, tuple[Texts, ...]] = {
    "encoder": _ENCODER,
    "engagement": _ENGAGEMENT,
    "sentiment_stop": _SENTIMENT_STOP,
    "fed": FED_VERIFIED + _FED_SPREAD,
    "quality": _QUALITY,
    "reaction": _REACTION,
    "relevance": _ENGAGEMENT,
    "usr": _ENGAGEMENT,
}


def build_turn(texts: Sequence[str], options: object = None, speaker: Speaker = "system") -> TurnToScore:
    """A turn of that speaker, who says the last text; the others are its context."""
    last = len(texts) - 1
    other: Speaker = "user" if speaker == "system" else "system"
    context = [Turn(speaker=speaker if (last - i) % 2 == 0 else other, text=texts[i]) for i in range(last)]
    return TurnToScore(context, texts[-1], options=options)


def self_test_turns(kind: str) -> list[TurnToScore]:
    """Known turns of the speaker whom scorers of that kind score."""
    speaker = find_scorer(kind)[0].speaker
    return [build_turn(texts, speaker=speaker) for texts in SELF_TEST_TEXTS[kind]]


# Largest share of the self-test's own spread that a tolerance may be, so that a constant graph fails. Chosen.
MOST_SHARE = 0.05
# How far an int8 graph's outputs may differ between machines. Measured (0002): AVX2 differs from AVX-512 VNNI by 0.003
# at most, in a quality of FED; where the products saturate, by 0.037 to 0.046.
INT8_TOLERANCE = 0.01


def build_self_test(turns: Sequence[TurnToScore], values: Sequence[float | None]) -> SelfTest:
    """The turns with the checkpoint's values; None for turns that the checkpoint did not score."""
    return SelfTest(
        turns=[
            SelfTestTurn(
                context=[(each.speaker, each.text) for each in turn.context],
                response=turn.response,
                value=None if value is None else round(float(value), 6),
            )
            for turn, value in zip(turns, values, strict=True)
        ]
    )


def record_outputs(bundle: Bundle, variants: Iterable[GraphVariant]) -> SelfTest:
    """The bundle's self-test with the outputs of these graphs on this machine, and their tolerances.

    Raises ExporterError where a graph scores every turn alike.
    """
    test = bundle.self_test()
    turns = [read_turn(each) for each in test.turns]
    tolerances = dict(test.tolerances)
    outputs = [dict(each.graphs) for each in test.turns]
    for variant in variants:
        scores = _score(bundle, variant, turns)
        for kept, score in zip(outputs, scores, strict=True):
            kept[variant] = GraphOutput(value=round(score.value, 6), details=_own_details(score))
        tolerances[variant] = _choose_tolerance(bundle, variant, [score.value for score in scores])
    recorded = [turn.model_copy(update={"graphs": kept}) for turn, kept in zip(test.turns, outputs, strict=True)]
    return SelfTest(turns=recorded, tolerances=tolerances)


def check_empty(output: Path) -> None:
    """Raises ExporterError where the folder is in use."""
    if output.exists() and any(output.iterdir()):
        raise ExporterError(f"{output}: is not empty; choose another folder")


def start_version(bundle: Bundle, version: str, output: Path) -> Bundle:
    """A copy of the bundle, with its old version, in the empty or missing folder `output`.

    Raises ExporterError where the folder is in use or `version` is not a version.
    """
    if not re.fullmatch(VERSION_PATTERN, version):
        raise ExporterError(f"{version!r} is not a version; give one such as 1.0.2")
    check_empty(output)
    return copy_bundle(bundle, output)


def write_self_test(bundle: Bundle, manifest: Manifest, test: SelfTest) -> Bundle:
    """The bundle under that manifest, with its graphs' outputs for these turns, each loaded as the service does."""
    place = bundle.path_of(manifest.self_test)
    write_json(place, test)
    finished = write_bundle(bundle.folder, manifest, bundle.lenders)
    write_json(place, record_outputs(finished, manifest.graphs))
    finished = write_bundle(bundle.folder, manifest, bundle.lenders)
    for variant in manifest.graphs:
        load_scorer(finished, variant, threads=1)
    return finished


def _score(bundle: Bundle, variant: GraphVariant, turns: Sequence[TurnToScore]) -> list[RawScore]:
    scorer_class, _ = find_scorer(bundle.manifest.kind)
    return score_in_one_batch(scorer_class(bundle, open_examined(bundle, variant)), turns)


def open_examined(bundle: Bundle, variant: GraphVariant, threads: int = 1) -> OnnxBackend:
    """The bundle's graph, or both of them, to measure on this machine's CPU."""
    with ExitStack() as stack:
        files = map(bundle.path_of, bundle.manifest.graphs[variant].files)
        graph, *joint = (stack.enter_context(examined_graph(file, variant)) for file in files)
        return OnnxBackend(graph, threads=threads, joint=next(iter(joint), None))


def _own_details(score: RawScore) -> dict[str, float]:
    """The graph's own outputs, without percentiles: these are only places among the reference turns."""
    return {name: round(value, 6) for name, value in score.details.items() if not name.endswith(PERCENTILE_SUFFIX)}


def _choose_tolerance(bundle: Bundle, variant: GraphVariant, values: Sequence[float]) -> float:
    promised = bundle.manifest.graphs[variant].parity_tolerance
    most = min(promised, INT8_TOLERANCE) if variant == "cpu-int8" else promised
    spread = max(values) - min(values)
    if not spread > 0:
        raise ExporterError(f"graph {variant} scores every self-test turn {values[0]:.6f}: nothing could show it wrong")
    return float(f"{min(most, MOST_SHARE * spread):.2g}")
