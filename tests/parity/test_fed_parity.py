"""FED's one pass gives the numbers of one pass for each follow-up: all qualities, both losses, both joins."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.exporter_data import PublishedFed, export_tiny_fed, save_tiny_dialogpt
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_exporters.bundles.self_test import build_turn
from turnscore_exporters.fed import bundle as bundle_module
from turnscore_exporters.fed.bundle import read_qualities
from turnscore_exporters.fed.language_model import END_OF_TEXT

TOLERANCE = 1e-4
WINDOW = 1024
QUALITIES = read_qualities()
FOLLOW_UPS = {name: each.model_dump() for name, each in QUALITIES.qualities.items()}
CONVERSATIONS = [
    ["hi, seen any good films?", "yes, a heist film set in Lisbon. do you like those?"],
    ["Good evening!"],
    ["a", "b", "c", "."],
    ["tell me a story 🙂", "¿Por qué no? 从前有一座山 🏔️🏔️", "what?", "<b>Once</b>  upon\ta time ‍🏳️‍🌈"],
    ["  spaces around  ", "no\nno "],
    ["don't | <|x|> \\ {}", "it's I'll we've"],
]
DIALOGUE = ["hi", "hello you", "did you see the sea?", "no, never!", "ok", "what about whales?", "lol", "I like it"]
DIALOGUE_TURNS = [DIALOGUE[: end + 1] for end in range(1, len(DIALOGUE), 2)]
CANDIDATES = ["ok", "I saw a film about the sea and whales", "no", "what did you do today? 🐋"]
CANDIDATE_TURNS = [[*DIALOGUE[:3], candidate] for candidate in CANDIDATES]

LOSSES = ("response_only", "whole_sequence")
TURN_LEVEL = {name: FOLLOW_UPS[name] for name in QUALITIES.sets["fed-turn"]}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """These passes are too small to share: on a busy machine waiting for a second thread takes most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return PublishedFed(save_tiny_dialogpt(tmp_path_factory.mktemp("dialogpt")))


@pytest.fixture(scope="module")
def bundle(published, tmp_path_factory):
    checkpoint = Path(published.model.config.name_or_path)
    folder = tmp_path_factory.mktemp("fed") / "bundle"
    with pytest.MonkeyPatch.context() as patched:  # what the export compares is compared here
        patched.setattr(bundle_module, "MIN_REFERENCE_TURNS", 12)
        return export_tiny_fed(checkpoint, folder, ("fp32", "cpu-int8"), count=12)


def load(bundle, join="stripped", variant="fp32"):
    options = {**bundle.manifest.options, "join": join}
    joined = replace(bundle, manifest=bundle.manifest.model_copy(update={"options": options}))
    graph = {each: spec.file for each, spec in bundle.manifest.graphs.items()}[variant]
    return FedScorer(joined, OnnxBackend(bundle.path_of(graph), threads=1))


def rate_all(scorer, parts, loss, names, *, at_once=True):
    """Encodes the conversations in one call; scores their packs in one batch or one by one."""
    packs = scorer.encode(turns_of(scorer, parts, loss, names))
    batches = [packs] if at_once else [[pack] for pack in packs]
    rated = {}
    for batch in batches:
        places = [place for pack in batch for place in pack.answers]
        for place, raw in zip(places, scorer.score(batch), strict=True):
            rated[place] = {name: raw.details[name] for name in names}
    return [rated[place] for place in range(len(parts))]


def turns_of(scorer, parts, loss, names):
    question = scorer.read_options({"qualities": list(names), "loss": loss})
    return [build_turn(texts, question) for texts in parts]


@pytest.mark.parametrize("join", ["stripped", "spaced"])
def test_a_turn_alone_and_in_a_batch_gets_the_published_numbers(bundle, published, join):
    scorer = load(bundle, join)
    parts = CONVERSATIONS if join == "stripped" else CONVERSATIONS[3:5]
    expected = [published.rate(texts, FOLLOW_UPS, join) for texts in parts]
    for loss in LOSSES:
        alone = [rate_all(scorer, [texts], loss, list(FOLLOW_UPS))[0] for texts in parts]
        batch = rate_all(scorer, parts, loss, list(FOLLOW_UPS))
        for number, wanted in enumerate(expected):
            assert alone[number] == pytest.approx(wanted[loss], abs=TOLERANCE)
            assert batch[number] == pytest.approx(wanted[loss], abs=TOLERANCE)


@pytest.mark.parametrize("join", ["stripped", "spaced"])
@pytest.mark.parametrize("parts", [DIALOGUE_TURNS, CANDIDATE_TURNS], ids=["dialogue", "candidates"])
def test_turns_in_one_row_get_the_published_numbers(bundle, published, join, parts):
    scorer = load(bundle, join)
    expected = [published.rate(texts, TURN_LEVEL, join) for texts in parts]
    for loss in LOSSES:
        assert len(scorer.encode(turns_of(scorer, parts, loss, list(TURN_LEVEL)))) == 1
        rated = rate_all(scorer, parts, loss, list(TURN_LEVEL))
        for number, wanted in enumerate(expected):
            assert rated[number] == pytest.approx(wanted[loss], abs=TOLERANCE)


def test_a_context_of_1024_tokens_keeps_its_latest_and_tells_what_was_dropped(bundle, published):
    scorer = load(bundle)
    texts = ["what did you do today? " * 60, "I saw whales and the sea " * 90, "hi", "no way!"]
    longest = max(
        (text for each in FOLLOW_UPS.values() for side in each.values() for text in side), key=_tokens_of(published)
    )
    own = {"own_qualities": {"longest": {"negative": [longest], "positive": ["That's a good point."]}}}
    for loss in LOSSES:
        question = scorer.read_options({**own, "loss": loss})
        [pack] = scorer.encode([build_turn(texts, question)])
        assert len(pack.rows[0]) + _tokens_of(published)(longest) == WINDOW
        whole = published.encode(END_OF_TEXT.join(["", *map(str.strip, texts), ""]))
        assert pack.tokens[0].dropped == len(whole) - len(pack.rows[0])
        [raw] = scorer.score([pack])
        wanted = published.rate(
            texts, {"longest": {"negative": [longest], "positive": ["That's a good point."]}}, "stripped"
        )
        assert raw.value == pytest.approx(wanted[loss]["longest"], abs=TOLERANCE)
        assert raw.details == {"longest": raw.value}


def test_the_int8_graph_stays_near_and_does_not_depend_on_the_batch(bundle):
    names, scorer = list(TURN_LEVEL), load(bundle, variant="cpu-int8")
    exact = rate_all(load(bundle), CONVERSATIONS, "response_only", names)
    together, single = (
        rate_all(scorer, CONVERSATIONS, "response_only", names, at_once=at_once) for at_once in (True, False)
    )
    for one, other, wanted in zip(together, single, exact, strict=True):
        assert one == pytest.approx(wanted, abs=0.2)
        assert one == pytest.approx(other, abs=TOLERANCE)


def _tokens_of(published):
    return lambda text: len(published.encode(text))
