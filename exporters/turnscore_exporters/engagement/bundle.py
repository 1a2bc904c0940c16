"""Exports an engagement checkpoint as a bundle: graphs, tokenizer, calibration, manifest. Requires parity."""

from functools import partial
from typing import Any

from turnscore_assessment.correlations import compute_auc
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_models import Bundle

from turnscore_exporters.bundles.checkpoint import Checkpoint, Score, bert_graphs, export_checkpoint, score_as_pairs
from turnscore_exporters.bundles.writer import turns_of
from turnscore_exporters.data.convai import ConvaiSplit, Labels, read_engagement_data
from turnscore_exporters.data.reference_turns import read_reference_turns, texts_and_labels
from turnscore_exporters.engagement.model import CONTRACT, load_model, score_pairs
from turnscore_exporters.json_files import read_json
from turnscore_exporters.options import EngagementExportOptions


def export_engagement(options: EngagementExportOptions) -> Bundle:
    """Writes the bundle as `export_checkpoint` does, with each graph's AUC on the judged sets."""
    labelled = read_engagement_data(options.data, check_counts=False)
    judged = {
        "judged": labelled.judged,
        "thumbs": labelled.convai.thumbs[ConvaiSplit.TEST],
        "corrected": labelled.convai.pairs[Labels.CORRECTED][ConvaiSplit.TEST],
    }
    sets = {name: texts_and_labels(pairs) for name, pairs in judged.items()}

    def measure_auc(score: Score) -> dict[str, Any]:
        return {name: round(compute_auc(score(turns_of(texts)), labels), 4) for name, (texts, labels) in sets.items()}

    reference = read_reference_turns(options.data, options.turns)
    model, encoder = load_model(options.checkpoint)
    training = read_json(options.checkpoint / "training.json")
    made = Checkpoint(
        scorer=EngagementScorer,
        encoder=encoder,
        write_graphs=bert_graphs(model, CONTRACT),
        score=score_as_pairs(partial(score_pairs, model, encoder)),
        turns=turns_of(reference.pairs),
        source=reference.source,
        training={**training, "combination": str(model.settings.combination), "heads": model.settings.heads},
        agreement={"report": _shorten(read_json(options.checkpoint / "report.json"))},
        by_graph=("auc_by_graph", measure_auc),
    )
    return export_checkpoint(made, options)


def _shorten(report: dict[str, Any]) -> dict[str, Any]:
    """AUC and Spearman with intervals on each test set, and the AUC of the reply's length."""
    lengths = report.get("length", {})
    return {
        name: {
            "pairs": figures["pairs"],
            "auc": figures["auc"],
            "spearman": figures["spearman"],
            "given_length": figures["given_length"],
            "auc_of_length": {kind: each["auc"]["value"] for kind, each in lengths[name].items()},
        }
        for name, figures in report.get("model", {}).items()
        if name in lengths
    }
