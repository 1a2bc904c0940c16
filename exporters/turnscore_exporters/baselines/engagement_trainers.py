"""Paper 004's two baselines on its split: trained under both readings of the labels, and tested on the same pairs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from turnscore_assessment.correlations import bootstrap, compute_auc, compute_balanced_accuracy

from turnscore_exporters.baselines.material.asked import Floats
from turnscore_exporters.baselines.plan import Plan, Trained
from turnscore_exporters.baselines.systems.engagement_classifiers import BiRnnClassifier, SvmClassifier, train_bi_rnn
from turnscore_exporters.data.convai import Labels, Split, count_labels
from turnscore_exporters.data.pairs import EngagementPair
from turnscore_exporters.engagement.data import EngagementData, EngagementPaths, read_engagement_data
from turnscore_exporters.engagement.report import TestSet, list_test_sets, measure_lengths

ROUNDS = 200
"""Resamples of an interval. Chosen: its ends then vary by some .01."""

Classifier = SvmClassifier | BiRnnClassifier


def train_svm(plan: Plan, *, check_counts: bool = True) -> Trained:
    def fit(pairs: Sequence[EngagementPair], _validation: Sequence[EngagementPair], _labels: Labels) -> SvmClassifier:
        return SvmClassifier(pairs, plan.seed)

    return _train_both(plan, fit, border=0.0, check_counts=check_counts)


def train_birnn(plan: Plan, *, check_counts: bool = True) -> Trained:
    def fit(pairs: Sequence[EngagementPair], validation: Sequence[EngagementPair], labels: Labels) -> BiRnnClassifier:
        vectors = plan.word_vectors([text for pair in pairs for text in (pair.query, pair.reply)])
        name = f"bi-rnn {labels}"
        return train_bi_rnn(
            pairs,
            validation,
            vectors,
            plan.settings(name),
            learning_rate=plan.size.learning_rate,
            state_path=plan.state(name.replace(" ", "-")),
        )

    return _train_both(plan, fit, border=0.5, check_counts=check_counts)


def _train_both(
    plan: Plan,
    fit: Callable[[Sequence[EngagementPair], Sequence[EngagementPair], Labels], Classifier],
    *,
    border: float,
    check_counts: bool,
) -> Trained:
    data = read_engagement_data(EngagementPaths.in_folder(plan.data), check_counts=check_counts)
    sets = list_test_sets(data)
    found: dict[Labels, Classifier] = {}
    tested = {}
    for labels in Labels:
        pairs = data.convai.pairs[labels]
        found[labels] = fit(pairs[Split.TRAIN], pairs[Split.VALIDATION], labels)
        tested[str(labels)] = {each.name: _test(found[labels], each, border) for each in sets}
    chosen = {str(labels): dict(each.chosen) for labels, each in found.items() if isinstance(each, BiRnnClassifier)}
    facts = {
        "pairs": _count(data),
        "chosen": chosen,
        "tested": tested,
        "length": {each.name: _test_length(each) for each in sets},
    }
    return Trained(found[Labels.CORRECTED], facts, _seen(data))


def _test(classifier: Classifier, test_set: TestSet, border: float) -> dict[str, Any]:
    scores = classifier.score_pairs([(pair.query, pair.reply) for pair in test_set.pairs])

    def balanced(left: Floats, right: Floats) -> float:
        return compute_balanced_accuracy(left, right, border)

    return {
        "pairs": len(test_set.pairs),
        "auc": _interval(compute_auc, scores, test_set.labels),
        "balanced_accuracy": _interval(balanced, scores, test_set.labels),
    }


def _test_length(test_set: TestSet) -> list[float]:
    characters = np.array(measure_lengths(test_set.pairs)["characters"])
    return _interval(compute_auc, characters, test_set.labels)


def _interval(statistic: Callable[[Floats, Floats], float], scores: Floats, labels: Sequence[int]) -> list[float]:
    found = bootstrap(statistic, scores, labels, ROUNDS)
    return [round(each, 4) for each in (found.value, found.low, found.high)]


def _count(data: EngagementData) -> dict[str, dict[str, tuple[int, int]]]:
    return {
        str(labels): {str(split): count_labels(data.convai.pairs[labels][split]) for split in Split}
        for labels in Labels
    }


def _seen(data: EngagementData) -> frozenset[str]:
    """The ids of dialogues in the splits that train or choose, under either reading."""
    splits = [data.convai.pairs[labels][split] for labels in Labels for split in (Split.TRAIN, Split.VALIDATION)]
    return frozenset(pair.dialogue_id for pairs in splits for pair in pairs)
