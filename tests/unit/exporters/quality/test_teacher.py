"""A larger sentence encoder as teacher: what it finds alike is learned, all else is held."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from turnscore_exporters.errors import CheckpointError, EncoderError, ExporterError
from turnscore_exporters.quality.model import QualityModel, QualitySettings, RowBuilder, collate_pairs
from turnscore_exporters.quality.spoken_turns import SpokenTurn
from turnscore_exporters.quality.taught import lessons
from turnscore_exporters.quality.taught.lessons import (
    HELD_HEADS,
    TaughtLogit,
    TeacherRecipe,
    ask_teacher,
    compare_candidates,
    draw_candidates,
    fit_taught_logit,
    learn_from_teacher,
)
from turnscore_exporters.quality.taught.teacher import compare_texts, load_sentence_teacher, read_or_embed
from turnscore_exporters.quality.taught.turns import (
    HELD_KINDS,
    TaughtBatch,
    choose_turns,
    draw_batches,
    list_texts,
)
from turnscore_exporters.quality.training import new_model
from turnscore_exporters.training.encoders import Encoder, load_encoder
from turnscore_service.scorers.quality_windows import WindowLayout

LAYOUT = WindowLayout(turn_tokens=8, window_tokens=16, stride_tokens=8)
TOPICS = [f"word{number}" for number in range(8)]


def turn(number: int, *, person: bool = True, previous: bool = True) -> SpokenTurn:
    about, own = TOPICS[number % len(TOPICS)], f"word{10 + number}"
    context = (("system", f"i like {about} {own}"), ("user", f"what about {about} {own}"))
    return SpokenTurn(
        source="own",
        dialogue=f"d{number}",
        place=1,
        context=context if previous else context[1:],
        response=f"{about} and the {own}",
        next_text=None,
        goes_on=None,
        said_by_person=person,
    )


TURNS = [turn(number, person=number % 5 != 0, previous=number % 3 != 0) for number in range(48)]
PEOPLE = [each for each in TURNS if each.said_by_person]
RECIPE = TeacherRecipe(batch=16, epochs=12, learning_rate=1e-3, head_rate=1e-3)
SHORT = TeacherRecipe(batch=8, epochs=2)


@pytest.fixture(scope="module")
def vectors() -> dict[str, np.ndarray]:
    """A teacher that finds texts about one thing alike."""
    chance = np.random.default_rng(0)
    axes = np.eye(16)
    found = {}
    for text in list_texts(TURNS):
        about = next(place for place, topic in enumerate(TOPICS) if topic in text.split())
        vector = axes[about] + 0.1 * chance.normal(size=16)
        found[text] = (vector / np.linalg.norm(vector)).astype(np.float16)
    return found


def fresh(tiny_bert: Path) -> tuple[QualityModel, Encoder]:
    torch.manual_seed(0)
    encoder = load_encoder(str(tiny_bert), 34)
    model = new_model(encoder, QualitySettings("tiny", LAYOUT)).eval()
    torch.nn.init.zeros_(model.head.bias)
    torch.nn.init.ones_(model.slope)
    return model, encoder


def answers(model: QualityModel, encoder: Encoder) -> tuple[torch.Tensor, torch.Tensor]:
    """`relevant` of each context and response, and every head of each turn."""
    builder = RowBuilder(encoder, LAYOUT)
    ids, mask, responses, contexts = collate_pairs([builder.first_pair(each.context, each.response) for each in TURNS])
    everyone = torch.arange(len(TURNS)).expand(len(TURNS), -1)
    with torch.no_grad():
        rows = model.read_rows(ids, mask)
        found = compare_candidates(model, rows, responses, contexts, everyone)
        return found, model.compare(rows, responses, contexts)


def test_the_student_comes_nearer_to_the_teacher_and_the_other_heads_stay(tiny_bert: Path, vectors) -> None:
    model, encoder = fresh(tiny_bert)
    first, first_heads = answers(model, encoder)
    wanted = learn_from_teacher(model, encoder, TURNS, PEOPLE, vectors, RECIPE)
    assert wanted.ratio > 0
    target = wanted.compute(first, ask_teacher(TURNS, vectors)[0])
    found, heads = answers(model, encoder)
    assert (found - target).abs().mean() < 0.3 * (first - target).abs().mean()
    moved = (heads - first_heads)[:, HELD_HEADS].abs().mean()
    assert moved < 0.1 * (found - first).abs().mean()
    assert all(weight.requires_grad for weight in model.parameters())


def test_a_resumed_run_ends_with_the_weights_of_one_that_was_not_interrupted(
    tiny_bert: Path, vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, encoder = fresh(tiny_bert)
    learn_from_teacher(whole, encoder, TURNS, PEOPLE, vectors, SHORT)
    monkeypatch.setattr(lessons, "SAVE_EVERY", 3)
    torn, encoder = fresh(tiny_bert)
    batches = draw_batches(TURNS, PEOPLE, 8, 2, 0.25, 0)
    assert len(batches) == 12
    asked: list[TaughtBatch] = []

    def stop_at_the_eighth(*given, **named):
        asked.append(given[2])
        if len(asked) == 8:
            raise KeyboardInterrupt
        return compute(*given, **named)

    compute = lessons.compute_lesson_loss
    monkeypatch.setattr(lessons, "compute_lesson_loss", stop_at_the_eighth)
    with pytest.raises(KeyboardInterrupt):
        learn_from_teacher(torn, encoder, TURNS, PEOPLE, vectors, SHORT, tmp_path / "state.pt")
    monkeypatch.setattr(lessons, "compute_lesson_loss", compute)
    again, encoder = fresh(tiny_bert)
    learn_from_teacher(again, encoder, TURNS, PEOPLE, vectors, SHORT, tmp_path / "state.pt")
    for left, right in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(left, right)
    another, encoder = fresh(tiny_bert)
    torch.nn.init.ones_(another.head.bias)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        learn_from_teacher(another, encoder, TURNS, PEOPLE, vectors, SHORT, tmp_path / "state.pt")


def test_the_own_response_stands_first_and_the_others_are_other_turns() -> None:
    candidates = draw_candidates(6, 3)
    assert candidates.shape == (6, 4)
    assert candidates[:, 0].tolist() == list(range(6))
    assert all(len(set(row)) == 4 for row in candidates.tolist())
    assert draw_candidates(2, 15).tolist() == [[0, 1], [1, 0]]
    assert draw_candidates(1, 15).tolist() == [[0]]


def test_likeness_is_the_mean_of_the_cosines_with_one_turn_and_with_two() -> None:
    responses = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    latest, previous = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    found = compare_texts(responses, latest, previous)
    half = 0.5**0.5
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [(1 + half) / 2, half / 2]]))


def test_the_wanted_logit_leaves_as_many_own_responses_fitting_and_fewer_others() -> None:
    chance = torch.Generator().manual_seed(0)
    own = torch.arange(4000) % 4 == 0
    logits = torch.randn(4000, generator=chance) + torch.where(own, 1.0, -1.0)
    likeness = 0.2 * torch.randn(4000, generator=chance) + torch.where(own, 0.5, 0.1)
    wanted = fit_taught_logit(logits, likeness, own)
    after = wanted.compute(logits, likeness)
    assert float((after[own] > 0).float().mean()) == pytest.approx(float((logits[own] > 0).float().mean()), abs=2e-3)
    assert float((after[~own] > 0).float().mean()) < float((logits[~own] > 0).float().mean())
    assert fit_taught_logit(logits, likeness, own, 2.0).ratio == pytest.approx(2 * wanted.ratio)
    assert TaughtLogit(ratio=10.0, offset=0.0).compute(torch.tensor([9.0]), torch.tensor([1.0])).item() == 7.0


def test_turns_are_drawn_whole_in_batches_of_like_length_and_made_up_ones_only_beside_peoples() -> None:
    longest = turn(99)
    longest = SpokenTurn(**{name: getattr(longest, name) for name in longest.__slots__} | {"response": "word " * 61})
    bots = [each for each in TURNS if not each.said_by_person]
    chosen = choose_turns([*PEOPLE, longest], bots, 1)
    assert {id(each) for each in chosen} == {id(each) for each in TURNS}
    batches = draw_batches(chosen, PEOPLE, 8, 1, 1.0, 0)
    assert sorted(id(each) for batch in batches for each in batch.turns) == sorted(map(id, TURNS))
    contexts = {each.context for each in PEOPLE}
    made_up = [response for batch in batches for context, response in batch.made_up if context in contexts]
    assert len(made_up) == sum(len(batch.made_up) for batch in batches) > 20
    assert "random" not in HELD_KINDS
    with pytest.raises(ExporterError, match="48 turns are at hand, too few for a batch of 64"):
        draw_batches(chosen, PEOPLE, 64, 1, 0.25, 0)


def test_the_teachers_vectors_are_kept_and_a_broken_name_is_refused(tiny_bert: Path, tmp_path: Path) -> None:
    teacher = load_sentence_teacher(str(tiny_bert))
    texts = ["i like whales", "the sea is a long text of many words", "the sea"]
    found = read_or_embed(teacher, texts, tmp_path)
    alone = teacher.embed([texts[2]])[0]
    np.testing.assert_allclose(found["the sea"].astype(float), alone.astype(float), atol=0.02)
    assert np.linalg.norm(found["the sea"].astype(float)) == pytest.approx(1.0, abs=1e-2)
    (file,) = tmp_path.glob("*/vectors0.npy")
    np.save(file, np.zeros((3, 4), dtype=np.float16))
    assert not read_or_embed(teacher, texts, tmp_path)["the sea"].any()
    assert read_or_embed(replace(teacher, name="another"), texts, tmp_path)["the sea"].any()
    assert read_or_embed(teacher, texts[1:], tmp_path)["the sea"].any()
    with pytest.raises(EncoderError, match=r"--sentence-teacher .*nothing: cannot be loaded"):
        load_sentence_teacher(str(tmp_path / "nothing"))
