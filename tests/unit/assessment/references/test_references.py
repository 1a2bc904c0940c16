"""References: rows, reducers, diversity and word metrics against libraries, and what the command writes."""

import json
import random
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
from support.bundles import make_bundle, make_encoder_bundle
from support.files import invoke, write_lines
from turnscore_assessment.commands.references import build_page
from turnscore_assessment.errors import BadFileError, MissingResourceError, ReferencesError
from turnscore_assessment.references import evaluation
from turnscore_assessment.references.vector_metrics import BundleEncoder, make_word_vector_metric, read_word_vectors
from turnscore_assessment.references.word_metrics import (
    Metric,
    count_common_subsequence,
    make_bleu,
    make_gleu,
    make_meteor,
    make_rouge_l,
)
from turnscore_client._command.registry import app

ROW = {"context_id": "c", "hypotheses": ["a b"], "references": ["a", "b"]}


def test_a_row_is_read_whole(tmp_path):
    rated = {**ROW, "system": "s", "rating": 3, "other": "left alone"}
    [row] = evaluation.read_comparisons(write_lines(tmp_path / "f.jsonl", rated))
    assert (row.context_id, row.system, row.rating) == ("c", "s", 3)
    assert (row.hypotheses, row.references) == (("a b",), ("a", "b"))


def test_the_original_comes_first_and_stands_once(tmp_path):
    path = tmp_path / "f.jsonl"
    assert evaluation.read_comparisons(write_lines(path, {**ROW, "reference": "b"}))[0].references == ("b", "a")
    assert evaluation.read_comparisons(write_lines(path, {**ROW, "reference": "c"}))[0].references == ("c", "a", "b")


def test_contexts_are_told_apart_by_their_texts(tmp_path):
    said = [{"context": context, "response": "r", "references": ["x"]} for context in (["a", "b"], ["a"], ["a", "b"])]
    names = [row.context_id for row in evaluation.read_comparisons(write_lines(tmp_path / "f.jsonl", *said))]
    assert names[0] == names[2] != names[1]


WRONG_ROWS = [
    ({"hypotheses": []}, "hypotheses"),
    ({"hypotheses": ["x"] * 1001}, "hypotheses: tuple should have at most 1000"),
    ({"response": "a"}, "either hypotheses or response"),
    ({"references": ["x" * 100_001]}, "references.0: string should have at most 100000 characters"),
    ({"rating": float("nan")}, "NaN is not valid JSON"),
    ({"context_id": "", "context": []}, "context_id"),
]


@pytest.mark.parametrize(("change", "said"), WRONG_ROWS)
def test_what_is_wrong_is_named_with_its_line(tmp_path, change, said):
    path = write_lines(tmp_path / "f.jsonl", ROW, {**ROW, **change})
    with pytest.raises(BadFileError) as refused:
        evaluation.read_comparisons(path)
    assert "line 2" in str(refused.value)
    assert said in str(refused.value)


def test_what_is_no_file_of_rows_is_refused(tmp_path):
    for content in ("{\n", "", "\n \n"):
        (tmp_path / "f.jsonl").write_text(content)
        with pytest.raises(BadFileError, match=r"f\.jsonl"):
            evaluation.read_comparisons(tmp_path / "f.jsonl")


def row(hypotheses, references, system="s"):
    return evaluation.ReferencedReplies(
        context_id="c", system=system, hypotheses=tuple(hypotheses), references=tuple(references)
    )


def test_each_reducer_asks_another_question():
    values = {"ap": 0.1, "aq": 0.4, "ar": 0.6, "bp": 0.5, "bq": 0.2, "br": 0.0}
    calls = []

    def compare(pairs):
        calls.append(pairs)
        return np.array([values[own + other] for own, other in pairs])

    metric = Metric(name="named", definition="named", tokenisation="named", compare=compare)
    tables = evaluation.Tables(metric, [row(["a", "b"], ["p", "q", "r"])])
    found = {name: float(tables.reduce(name)[0]) for name in ("single", "max", "mean", "recall")}
    assert found == pytest.approx({"single": 0.3, "max": 0.55, "mean": 1.8 / 6, "recall": 1.5 / 3})
    assert len(calls) == 1


def test_joint_and_max_differ_where_references_complete_each_other():
    tables = evaluation.Tables(make_bleu(1), [row(["a b"], ["a x", "y b"])])
    assert (tables.reduce("joint")[0], tables.reduce("max")[0]) == (1.0, 0.5)


def test_distinct_by_hand():
    texts = [("a", "b"), ("a", "b", "a")]
    assert evaluation.distinct(texts, 1) == 2 / 5
    assert evaluation.distinct(texts, 2) == 2 / 3
    assert evaluation.distinct(texts, 9) == 0


def test_adjusted_distinct_does_not_punish_length():
    # 2 of V = 4, 5 draws: 2 / (4 (1 - (3/4)^5))
    assert evaluation.adjusted_distinct([("a", "b"), ("a", "b", "a")], 1, 4) == pytest.approx(2 / (4 * (1 - 0.75**5)))
    generator = np.random.default_rng(0)
    short, long = (tuple(map(str, generator.integers(0, 200, size))) for size in (100, 2000))
    assert evaluation.distinct([long], 1) < 0.3 * evaluation.distinct([short], 1)
    assert evaluation.adjusted_distinct([long], 1, 200) == pytest.approx(
        evaluation.adjusted_distinct([short], 1, 200), abs=0.1
    )


def test_self_bleu_by_hand():
    assert evaluation.self_bleu([["a b", "a b", "a b"]])[2] == 1
    assert evaluation.self_bleu([["a b", "c d"]])[2] == 0
    assert evaluation.self_bleu([["a b", "a c"], ["x", "y"]])[1] == 0.25


@pytest.mark.parametrize("tokenisation", ["blanks", "words"])
def test_empty_replies_are_counted_and_warned_of(tokenisation):
    """They are compared as a full stop, so silence scores where references end with one."""
    rows = [row(["", "  "], ["i see ."], "mute"), row([".", "i see ."], ["i see ."], "other")]
    found = evaluation.evaluate(rows, [make_bleu(1, tokenisation)], ["max"], tokenisation)
    assert found.results[0].value > 0
    assert found.empty == {"mute": 2}
    assert "warning: 2 empty replies of mute are compared as a full stop" in build_page(found).summary[1]
    assert (
        len(build_page(evaluation.evaluate(rows[1:], [make_bleu(1, tokenisation)], ["max"], tokenisation)).summary) == 1
    )


def test_bleu_by_hand():
    # 3 of 4 words, 1 of 3 bigrams, as long as the reference: sqrt(3/4 * 1/3)
    assert make_bleu(2).compare([("a b x d", "a b c d")])[0] == pytest.approx(0.5)
    assert make_bleu(2).compare([("a b", "a b c d")])[0] == pytest.approx(np.exp(1 - 4 / 2))
    assert make_bleu(1).compare([("x y", "a b")])[0] == 0
    assert make_bleu(2).compare([("a x", "a b")])[0] == pytest.approx((0.5 * 0.1) ** 0.5)


def brute_common(left, right):
    table = np.zeros((len(left) + 1, len(right) + 1), int)
    for i, word in enumerate(left):
        for j, other in enumerate(right):
            table[i + 1, j + 1] = table[i, j] + 1 if word == other else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


def test_the_longest_common_subsequence_is_that_of_the_table():
    chance = random.Random(1)
    for _ in range(300):
        left, right = (tuple(chance.choices("abcde?t", k=chance.randint(0, 70))) for _ in range(2))
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


def test_every_metric_says_what_it_is(tmp_path):
    names = [name for name in evaluation.metric_names() if "@" in name or name.startswith(("bleu", "rouge", "gleu"))]
    metrics = evaluation.find_metrics([name for name in names if name != "meteor@nltk"], evaluation.Resources())
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


def test_a_metric_without_what_it_needs_says_how_to_give_it():
    needed = {"encoder": "--encoder", "meteor": "--meteor-jar", "vector-extrema": "--word-vectors"}
    for name, option in needed.items():
        with pytest.raises(MissingResourceError, match=option):
            evaluation.find_metrics([name], evaluation.Resources())


def test_a_broken_meteor_jar_is_an_error_with_its_words(tmp_path):
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    jar = tmp_path / "meteor.jar"
    jar.write_bytes(b"no jar")
    with pytest.raises(MissingResourceError, match="jar failed"):
        make_meteor(jar).compare([("a", "a")])


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("a 1 0\nb 0 2\nc -3 0\n")
    return path


def test_word_vector_metrics_by_hand(vectors):
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


def test_a_word_without_a_vector_takes_the_mean_of_all(vectors):
    read = read_word_vectors(vectors, {"a"})
    assert set(read.known) == {"a"}
    assert read.other.tolist() == pytest.approx([-2 / 3, 2 / 3])
    assert make_word_vector_metric("embedding-average", read).compare([("x", "y")])[0] == pytest.approx(1.0)


def test_what_is_no_file_of_vectors_is_refused(tmp_path):
    path = tmp_path / "v.txt"
    for content in (b"a 1 0\nb 1\n", b"a 1 x\n", b"a 1 nan\n", b"", b"a 1 0\nb 1 2 3\n", b"caf\xe9 1 0\n"):
        path.write_bytes(content)
        with pytest.raises(ReferencesError, match=r"v\.txt"):
            read_word_vectors(path, {"a"})
    (tmp_path / "v.txt.gz").write_bytes(b"no archive")
    with pytest.raises(ReferencesError, match="cannot be read"):
        read_word_vectors(tmp_path / "v.txt.gz", {"a"})


def test_a_word_may_hold_blanks_as_in_gloves_largest_file(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("a 1 0\n. . . 0 1\nat name@domain.com 1 1\n")
    words = {"a", ". . .", "at name@domain.com"}
    assert set(read_word_vectors(path, words).known) == words


def test_an_empty_text_and_one_of_many_words_are_compared():
    for metric in (make_bleu(4), make_rouge_l(), make_gleu()):
        assert np.isfinite(metric.compare([("", ""), ("a " * 5000, "a b " * 2500), ("", "a")])).all()


SAID = ["good fine", "bad ugly", "a b c", "nice good", "wrong x", "y z"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles") / "encoder"
    make_encoder_bundle(folder)
    return f"{folder}/"


@pytest.fixture
def file(tmp_path):
    rows = []
    for number, text in enumerate(SAID * 2):
        texts = [text] if number else [text, "fine"]
        said = {"hypotheses": texts, "references": ["good fine nice", SAID[(number + 1) % 6], "a b d"]}
        own = {"context_id": f"c{number // 2}", "system": "ab"[number % 2], "rating": 5 - number % 3 + number / 10}
        rows.append({**own, **said})
    return write_lines(tmp_path / "rows.jsonl", *rows)


def run(*arguments, code=0):
    return invoke(app, ["references", *arguments], code)


def test_the_default_metric_is_the_encoder_if_given_over_the_best_reference(file, bundle, tmp_path):
    done = run(file, "--encoder", bundle, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert {(each["metric"], each["reducer"], each["level"]) for each in found["results"]} == {
        ("encoder", "max", "segment")
    }
    assert "cosine of sentence vectors by encoder:0.0.1" in found["results"][0]["definition"]
    assert [each["references"] for each in found["correlations"]] == [1, 2, 3]
    assert "encoder" in done.output
    run(file, "--json", tmp_path / "found.json")
    assert {each["metric"] for each in json.loads((tmp_path / "found.json").read_text())["results"]} == {"rouge-l"}


def test_every_result_names_metric_definition_reducer_and_tokenisation(file, bundle, tmp_path):
    metrics = ["encoder", "bleu-2", "bleu-2@sacrebleu"]
    reducers = ["single", "max", "mean", "joint", "recall"]
    asked = [part for name in metrics for part in ("--metric", name)]
    asked += [part for name in reducers for part in ("--reducer", name)]
    run(file, *asked, "--encoder", bundle, "--json", tmp_path / "found.json", "--plot", tmp_path / "plot.svg")
    found = json.loads((tmp_path / "found.json").read_text())
    for each in [*found["results"], *found["correlations"]]:
        assert all(each[name] for name in ("metric", "definition", "reducer", "tokenisation"))
    assert {each["level"] for each in found["results"]} == {"segment", "corpus"}
    assert {(each["system"], each["rows"], each["hypotheses"]) for each in found["results"]} == {
        ("a", 6, 7),
        ("b", 6, 6),
    }
    assert {each["reducer"] for each in found["results"] if each["metric"] == "encoder"} == set(reducers) - {"joint"}
    against = {each["metric"]: each["against_first"] for each in found["correlations"] if each["reducer"] == "max"}
    assert against["encoder"] is None
    assert 0 <= against["bleu-2"]["p"] <= 1
    drawn = ElementTree.fromstring((tmp_path / "plot.svg").read_text())
    names = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert set(metrics) <= names


def test_a_file_without_ratings_has_no_correlations_and_no_plot(file, tmp_path):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    write_lines(file, *({**row, "rating": None} for row in rows))
    done = run(file, "--metric", "bleu-1", "--json", tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())["correlations"] == []
    assert "Pearson" not in done.output
    assert "no row has a rating" in run(file, "--metric", "bleu-1", "--plot", tmp_path / "plot.svg", code=1).output


IMPOSSIBLE = [
    (["--metric", "encoder"], "--encoder"),
    (["--metric", "bleu-9"], "no metric is called bleu-9"),
    (["--metric", "bleu-1", "--reducer", "best"], "no reducer is called best"),
    (["--metric", "bleu-1", "--tokenisation", "letters"], "no tokenisation is called letters"),
    (["--encoder", "./no-such-bundle/"], "no-such-bundle"),
]


@pytest.mark.parametrize(("arguments", "said"), IMPOSSIBLE)
def test_what_cannot_be_done_is_said(file, arguments, said):
    done = run(file, *arguments, code=1)
    assert said in done.output
    assert "Traceback" not in done.output


def test_a_bundle_of_another_kind_is_refused(file, tmp_path):
    make_bundle(tmp_path / "other")
    assert "of kind engagement, not encoder" in run(file, "--encoder", f"{tmp_path / 'other'}/", code=1).output


def test_a_text_s_vector_does_not_depend_on_what_is_encoded_with_it(bundle):
    encoder = BundleEncoder(bundle)
    texts = [*SAID, "a " * 50, "good"]
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-6
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(len(texts)))
    assert len(encoder.encode([])) == 0
