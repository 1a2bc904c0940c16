"""Exports a sentiment/stop checkpoint as a bundle: both outputs in one graph. Refuses one without parity."""

import random
from collections.abc import Sequence
from functools import partial

from turnscore_assessment.agreement.scoring import make_turn
from turnscore_assessment.data.dialogues import read_sets, read_turns
from turnscore_assessment.figures import compute_spearman
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scorers.sentiment_stop import SentimentStopScorer
from turnscore_models import Bundle

from turnscore_exporters.bundles.writer import Checkpoint, Score, bert_graphs, export_checkpoint
from turnscore_exporters.graphs.export import EXAMPLE_IDS, ROW_AXES, GraphContract
from turnscore_exporters.json_files import read_json
from turnscore_exporters.options import SentimentExportOptions
from turnscore_exporters.sentiment.model import SentimentStopModel, WindowBuilder, load_model, score_rows
from turnscore_exporters.sentiment.report import read_judged_responses
from turnscore_exporters.sentiment.training import DEVELOPMENT_FILE, DEVELOPMENT_FORM
from turnscore_exporters.training.encoders import Encoder

CONTRACT = GraphContract(
    inputs={"input_ids": ROW_AXES, "attention_mask": ROW_AXES, "token_type_ids": ROW_AXES},
    outputs={"sentiment": ("rows",), "goes_on": ("rows",)},
    examples=(EXAMPLE_IDS, (EXAMPLE_IDS > 0).long(), (EXAMPLE_IDS > 1).long()),
)


def export_sentiment(options: SentimentExportOptions) -> Bundle:
    """Writes the bundle as `export_checkpoint` does, with each graph's agreement on the development set.

    Parity and percentiles are of turns drawn equally from the sets whose users could leave.
    """
    sets = [each for each in read_sets() if each.goes_on == "observed"]
    generator = random.Random(0)  # noqa: S311
    drawn: list[TurnToScore] = []
    for turns in read_turns(options.data, sets, 0).values():
        found = [make_turn(each.context, each.response) for each in turns]
        drawn += generator.sample(found, min(options.turns // len(sets), len(found)))
    path = options.data / DEVELOPMENT_FILE
    judged = read_judged_responses(path, DEVELOPMENT_FORM) if path.exists() else []
    to_score = [make_turn(each.context, each.response) for each in judged]

    def measure_spearman(score: Score) -> float:
        return round(compute_spearman(score(to_score), [each.rating for each in judged]), 4)

    model, encoder = load_model(options.checkpoint)
    made = Checkpoint(
        scorer=SentimentStopScorer,
        encoder=encoder,
        write_graphs=bert_graphs(model, CONTRACT),
        score=partial(score_turns, model, encoder),
        turns=drawn,
        source=f"system turns of {' and '.join(each.name for each in sets)}, which were trained on",
        options=model.settings.layout.model_dump(),
        training=read_json(options.checkpoint / "training.json"),
        agreement={"report": read_json(options.checkpoint / "report.json")},
        by_graph=("spearman_by_graph", measure_spearman) if judged else None,
    )
    return export_checkpoint(made, options)


def score_turns(model: SentimentStopModel, encoder: Encoder, turns: Sequence[TurnToScore]) -> list[float]:
    """The checkpoint's values: sentiment plus probability of going on."""
    builder = WindowBuilder(encoder, model.settings)
    rows = [builder.build([(each.speaker, each.text) for each in turn.context], turn.response) for turn in turns]
    values: list[float] = score_rows(model, rows).double().sum(1).tolist()
    return values
