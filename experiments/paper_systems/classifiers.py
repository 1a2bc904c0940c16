"""The two classifiers that Predictive Engagement compares with: a linear SVM on counted words, and two Bi-RNNs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn import functional
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.figures import Floats, bootstrap, compute_auc, compute_balanced_accuracy
from turnscore_exporters.data.pairs import ConvaiSplit, EngagementData, Labels, read_engagement_data
from turnscore_exporters.engagement.training import TestSet, list_test_sets, measure_lengths, texts_of
from turnscore_exporters.training.loop import BestWeights, LoopSettings, choose_batch, train

from paper_systems.data import PairJudge, split_words
from paper_systems.plan import Trained, TrainingPlan
from paper_systems.ruber import FUSED_ADAM, BiRnnNetwork, WordVectors, ask_network

REGULARISATION = 0.1  # Specified: the paper's C.
# The paper does not give the length of its n-grams. Chosen: one to three words that three training texts share.
N_GRAMS, LEAST_TEXTS = (1, 3), 3
MOST_ROUNDS = 5000
BATCH_SIZE, SCORED_AT_ONCE = 64, 256


class SvmClassifier:
    """A linear SVM over words and their n-grams, the reply's length, and its number of distinct words.

    Counts and scales come from the training pairs alone.
    """

    def __init__(self, pairs: Sequence[LabelledTurn], seed: int = 0) -> None:
        self._counter = CountVectorizer(
            tokenizer=split_words, token_pattern=None, ngram_range=N_GRAMS, min_df=LEAST_TEXTS, binary=True
        )
        self._counter.fit([text for pair in pairs for text in (pair.query, pair.response)])
        lengths = _measure_replies([pair.response for pair in pairs])
        self._most = np.maximum(lengths.max(0), 1.0)
        self._svm = LinearSVC(C=REGULARISATION, class_weight="balanced", random_state=seed, max_iter=MOST_ROUNDS)
        self._svm.fit(self._read(texts_of(pairs)), [pair.rating for pair in pairs])

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Signed distance from the border, above 0 for engaging."""
        found: Floats = np.asarray(self._svm.decision_function(self._read(pairs)), dtype=np.float64)
        return found

    def _read(self, pairs: Sequence[tuple[str, str]]) -> csr_matrix:
        replies = [reply for _, reply in pairs]
        sides = [self._counter.transform([query for query, _ in pairs]), self._counter.transform(replies)]
        return csr_matrix(hstack([*sides, csr_matrix(_measure_replies(replies) / self._most)]))


@dataclass(frozen=True, kw_only=True)
class BiRnnClassifier:
    """The trained network, and what says which step's weights it has."""

    network: BiRnnNetwork
    vectors: WordVectors
    chosen: Mapping[str, float] = field(default_factory=dict)

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        scores: list[float] = []
        with torch.inference_mode():
            for start in range(0, len(pairs), SCORED_AT_ONCE):
                logits = ask_network(self.network, self.vectors, pairs[start : start + SCORED_AT_ONCE])
                scores += logits.softmax(-1)[:, 1].tolist()
        return np.array(scores)


def train_bi_rnn(
    pairs: Sequence[LabelledTurn],
    validation: Sequence[LabelledTurn],
    vectors: WordVectors,
    settings: LoopSettings,
    state_path: Path | None = None,
) -> BiRnnClassifier:
    """Trains on the cross entropy weighted by inverse class frequency; keeps the step with the best validation AUC."""
    torch.manual_seed(settings.seed)
    network = BiRnnNetwork(vectors.width)
    weight = weigh_classes([int(pair.rating) for pair in pairs])
    texts = texts_of(pairs)

    def step_loss(step: int) -> Tensor:
        chosen = choose_batch(len(pairs), BATCH_SIZE, step, settings.seed)
        labels = torch.tensor([int(pairs[index].rating) for index in chosen])
        return functional.cross_entropy(
            ask_network(network, vectors, [texts[index] for index in chosen]), labels, weight
        )

    def measure() -> float:
        network.eval()
        scores = BiRnnClassifier(network=network, vectors=vectors).score_pairs(texts_of(validation))
        network.train()
        return compute_auc(scores, [pair.rating for pair in validation])

    best = BestWeights(measure, settings.steps)
    train(network, step_loss, replace(settings, optimizer=FUSED_ADAM), state_path=state_path, follower=best)
    return BiRnnClassifier(network=network, vectors=vectors, chosen=best.found)


def weigh_classes(labels: Sequence[int]) -> Tensor:
    """Weights by inverse frequency, so that both classes count equally; a missing class keeps a finite weight."""
    share = float(np.clip(np.mean(labels), 1e-3, 1 - 1e-3))
    return torch.tensor([0.5 / (1 - share), 0.5 / share])


def _measure_replies(replies: Sequence[str]) -> Floats:
    """The number of words, and of distinct words, of each reply."""
    words = [split_words(reply) for reply in replies]
    return np.array([[len(each), len(set(each))] for each in words], dtype=np.float64)


ROUNDS = 200  # Resamples of an interval. Chosen: its ends then vary by some .01.

Classifier = SvmClassifier | BiRnnClassifier


def train_svm(plan: TrainingPlan) -> Trained:
    def fit(pairs: Sequence[LabelledTurn], _validation: Sequence[LabelledTurn], _labels: Labels) -> SvmClassifier:
        return SvmClassifier(pairs, plan.seed)

    return _train_both("svm", plan, fit, border=0.0)


def train_birnn(plan: TrainingPlan) -> Trained:
    def fit(pairs: Sequence[LabelledTurn], validation: Sequence[LabelledTurn], labels: Labels) -> BiRnnClassifier:
        vectors = plan.word_vectors([text for pair in pairs for text in (pair.query, pair.response)])
        name = f"bi-rnn {labels}"
        return train_bi_rnn(pairs, validation, vectors, plan.settings(name), plan.state(name.replace(" ", "-")))

    return _train_both("bi-rnn", plan, fit, border=0.5)


def _train_both(
    name: str,
    plan: TrainingPlan,
    fit: Callable[[Sequence[LabelledTurn], Sequence[LabelledTurn], Labels], Classifier],
    *,
    border: float,
) -> Trained:
    data = read_engagement_data(plan.data, check_counts=plan.check_counts)
    sets = list_test_sets(data)
    found: dict[Labels, Classifier] = {}
    tested = {}
    for labels in Labels:
        pairs = data.convai.pairs[labels]
        found[labels] = fit(pairs[ConvaiSplit.TRAIN], pairs[ConvaiSplit.VALIDATION], labels)
        tested[str(labels)] = {each.name: _test(found[labels], each, border) for each in sets}
    chosen = {str(labels): dict(each.chosen) for labels, each in found.items() if isinstance(each, BiRnnClassifier)}
    lengths = {
        each.name: _interval(compute_auc, np.array(measure_lengths(each.pairs)["characters"]), each.labels)
        for each in sets
    }
    facts = {"chosen": chosen, "tested": tested, "length": lengths}
    return Trained(PairJudge(name, found[Labels.CORRECTED].score_pairs), facts, _seen(data))


def _test(classifier: Classifier, test_set: TestSet, border: float) -> dict[str, Any]:
    scores = classifier.score_pairs([(pair.query, pair.response) for pair in test_set.pairs])
    balanced = partial(compute_balanced_accuracy, threshold=border)
    return {
        "pairs": len(test_set.pairs),
        "auc": _interval(compute_auc, scores, test_set.labels),
        "balanced_accuracy": _interval(balanced, scores, test_set.labels),
    }


def _interval(statistic: Callable[[Floats, Floats], float], scores: Floats, labels: Sequence[int]) -> list[float]:
    found = bootstrap(statistic, scores, labels, ROUNDS)
    return [round(each, 4) for each in (found.value, found.low, found.high)]


def _seen(data: EngagementData) -> frozenset[str]:
    """The ids of dialogues in the splits that train or choose, under either reading."""
    splits = [
        data.convai.pairs[labels][split] for labels in Labels for split in (ConvaiSplit.TRAIN, ConvaiSplit.VALIDATION)
    ]
    return frozenset(pair.dialogue for pairs in splits for pair in pairs)
