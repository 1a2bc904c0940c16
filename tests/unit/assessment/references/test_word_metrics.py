"""Word metrics: against libraries where these compute the same, against slow definitions and by hand where not."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from turnscore_assessment.errors import MissingResourceError, ReferencesError
from turnscore_assessment.references.evaluation import Resources, find_metrics, metric_names
from turnscore_assessment.references.vector_metrics import make_word_vector_metric, read_word_vectors
from turnscore_assessment.references.word_metrics import (
    count_common_subsequence,
    make_bleu,
    make_gleu,
    make_meteor,
    make_rouge_l,
)

WORDS = ["a", "b", "c", "d", "e", "?", "the"]


def test_bleu_by_hand():
    # 3 of 4 words, 1 of 3 bigrams, as long as the reference: sqrt(3/4 * 1/3)
    assert make_bleu(2).compare([("a b x d", "a b c d")])[0] == pytest.approx(0.5)
    assert make_bleu(2).compare([("a b", "a b c d")])[0] == pytest.approx(np.exp(1 - 4 / 2))
    assert make_bleu(1).compare([("x y", "a b")])[0] == 0
    assert make_bleu(2).compare([("a x", "a b")])[0] == pytest.approx((0.5 * 0.1) ** 0.5)


def brute_common(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    table = np.zeros((len(left) + 1, len(right) + 1), int)
    for i, word in enumerate(left):
        for j, other in enumerate(right):
            table[i + 1, j + 1] = table[i, j] + 1 if word == other else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


def test_the_longest_common_subsequence_is_that_of_the_table():
    chance = random.Random(1)
    for _ in range(300):
        left, right = (tuple(chance.choices(WORDS, k=chance.randint(0, 70))) for _ in range(2))
        assert count_common_subsequence(left, right) == brute_common(left, right)


def test_rouge_by_hand():
    # common "a c": precision 2/3, recall 2/4, beta 1.2
    expected = (1 + 1.44) * (2 / 3) * (1 / 2) / (1 / 2 + 1.44 * 2 / 3)
    assert make_rouge_l().compare([("a c x", "a b c d")])[0] == pytest.approx(expected)


def test_joint_rouge_takes_precision_and_recall_from_different_references():
    rouge, own, others = make_rouge_l(), "a b c", ["a b c d e f", "a"]
    assert rouge.compare_jointly is not None
    # precision 1 from the first, recall 1 from the second
    assert rouge.compare_jointly([(own, others)])[0] == pytest.approx(1.0)
    assert rouge.compare([(own, other) for other in others]).max() < 0.8


def test_gleu_is_the_lesser_of_precision_and_recall_of_all_ngrams():
    # hypothesis 3+2+1 n-grams, reference 4+3+2+1; common: a, b, "a b"
    assert make_gleu().compare([("a b x", "a b c d")])[0] == pytest.approx(min(3 / 6, 3 / 10))


def test_every_metric_says_what_it_is(tmp_path: Path):
    names = [name for name in metric_names() if "@" in name or name.startswith(("bleu", "rouge", "gleu"))]
    metrics = find_metrics([name for name in names if name != "meteor@nltk"], Resources())
    assert len({metric.definition for metric in metrics}) == len(metrics)
    for metric in metrics:
        assert metric.tokenisation
        same, apart = metric.compare([("the cat sat on a mat .", "the cat sat on a mat ."), ("yes", "no !")])
        assert same > 0.99
        assert apart < 0.1
        if metric.compare_jointly is not None:
            assert metric.compare_jointly([("a b c d", ["x", "a b c d"])])[0] > 0.99
        if metric.compare_corpus is not None:
            assert metric.compare_corpus([("a b c d", ["x", "a b c d"])]) > 0.99


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("encoder", "--encoder"),
        ("gensen", "--encoder"),
        ("meteor", "--meteor-jar"),
        ("vector-extrema", "--word-vectors"),
    ],
)
def test_a_metric_without_what_it_needs_says_how_to_give_it(name: str, option: str):
    with pytest.raises(MissingResourceError, match=option):
        find_metrics([name], Resources())


def test_a_broken_meteor_jar_is_an_error_with_its_words(tmp_path: Path):
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    jar = tmp_path / "meteor.jar"
    jar.write_bytes(b"no jar")
    with pytest.raises(MissingResourceError, match="jar failed"):
        make_meteor(jar).compare([("a", "a")])


VECTORS = "a 1 0\nb 0 2\nc -3 0\n"


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text(VECTORS)
    return path


def test_word_vector_metrics_by_hand(vectors: Path):
    read = read_word_vectors(vectors, {"a", "b", "c"})
    average, extrema, greedy = (
        make_word_vector_metric(name, read) for name in ("embedding-average", "vector-extrema", "greedy-matching")
    )
    # sums (1, 2) and (-2, 0)
    assert average.compare([("a b", "a c")])[0] == pytest.approx(-1 / 5**0.5)
    # extrema (1, 2) and (-3, 0)
    assert extrema.compare([("a b", "a c")])[0] == pytest.approx(-1 / 5**0.5)
    # a finds a (1), b finds nothing (0); a finds a (1), c finds b at best (0)
    assert greedy.compare([("a b", "a c")])[0] == pytest.approx(0.5)
    assert "vectors.txt" in greedy.definition


def test_a_word_without_a_vector_takes_the_mean_of_all(vectors: Path):
    read = read_word_vectors(vectors, {"a"})
    assert set(read.known) == {"a"}
    assert read.other.tolist() == pytest.approx([-2 / 3, 2 / 3])
    assert make_word_vector_metric("embedding-average", read).compare([("x", "y")])[0] == pytest.approx(1.0)


@pytest.mark.parametrize("content", ["a 1 0\nb 1\n", "a 1 x\n", "a 1 nan\n", "", "a 1 0\nb 1 2 3\n"])
def test_what_is_no_file_of_vectors_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "v.txt"
    path.write_text(content)
    with pytest.raises(ReferencesError, match=r"v\.txt"):
        read_word_vectors(path, {"a"})


def test_a_word_may_hold_blanks_as_in_gloves_largest_file(tmp_path: Path):
    path = tmp_path / "v.txt"
    path.write_text("a 1 0\n. . . 0 1\nat name@domain.com 1 1\n")
    assert set(read_word_vectors(path, {"a", ". . .", "at name@domain.com"}).known) == {
        "a",
        ". . .",
        "at name@domain.com",
    }


@pytest.mark.parametrize(("name", "content"), [("v.txt", b"caf\xe9 1 0\n"), ("v.txt.gz", b"no archive")])
def test_vectors_that_cannot_be_read_are_refused(tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ReferencesError, match="cannot be read"):
        read_word_vectors(tmp_path / name, {"a"})


def test_an_empty_text_and_one_of_many_words_are_compared():
    for metric in (make_bleu(4), make_rouge_l(), make_gleu()):
        assert np.isfinite(metric.compare([("", ""), ("a " * 5000, "a b " * 2500), ("", "a")])).all()
