"""Exports a sentence encoder as a bundle of kind encoder: graphs, tokenizer, manifest. Refuses one without parity.

Its value is the cosine of a response and the text before it: parity and percentiles are taken over real turns.
"""

from dataclasses import dataclass
from pathlib import Path

from turnscore_core.scorers.encoder import KIND, TextEncoder
from turnscore_models import Bundle

from turnscore_exporters.bundles.encoder import MIN_PARITY_TURNS, BundleSource, GraphChoice, write_files
from turnscore_exporters.bundles.parity import examine_graphs
from turnscore_exporters.bundles.self_test import build_self_test, self_test_turns
from turnscore_exporters.bundles.writer import DEFAULT_GRAPHS, finish_bundle, fresh_folder, start_bundle
from turnscore_exporters.data.reference_turns import ReferenceTurns
from turnscore_exporters.text_encoder.model import CONTRACT, Pooling, TextEncoderModel, compare_pairs, find_pooling
from turnscore_exporters.training.encoders import Encoder, load_encoder

INT8_TOLERANCE = 0.05
"""Largest allowed difference of a cosine. Chosen: twice all-MiniLM-L6-v2's on 2,000 turns (docs/references.md)."""
DEFAULT_CHOICE = GraphChoice(DEFAULT_GRAPHS, INT8_TOLERANCE)
TOKEN_LIMIT = 256
"""Most tokens of a text. Chosen: as all-MiniLM-L6-v2 was trained."""


@dataclass(frozen=True, kw_only=True)
class TextEncoderExport:
    """The encoder, the graphs to write, and the output folder."""

    encoder: str
    version: str
    output: Path
    reference: ReferenceTurns
    graphs: GraphChoice = DEFAULT_CHOICE
    pooling: Pooling | None = None
    """None takes the pooling that the encoder's folder asks for."""
    token_limit: int = TOKEN_LIMIT
    licence: str = "that of the encoder"


def export_text_encoder(job: TextEncoderExport) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the encoder on the reference turns, ExporterError if there are fewer
    than 200 of them; the folder is then removed.
    """
    with fresh_folder(job.output, len(job.reference.pairs), MIN_PARITY_TURNS):
        encoder = load_encoder(job.encoder, job.token_limit)
        model = TextEncoderModel(encoder.model, job.pooling or find_pooling(job.encoder))
        return _write(job, model.eval(), encoder)


def _write(job: TextEncoderExport, model: TextEncoderModel, encoder: Encoder) -> Bundle:
    expected = compare_pairs(model, encoder, job.reference.pairs)
    tested = self_test_turns(KIND)
    pairs = [(turn.context[-1].text if turn.context else "", turn.response) for turn in tested]
    self_test = build_self_test(tested, compare_pairs(model, encoder, pairs))
    write_files(
        BundleSource(
            model=model,
            encoder=encoder,
            contract=CONTRACT,
            expected=expected,
            reference=job.reference.source,
            self_test=self_test,
        ),
        job.graphs,
        job.output,
    )
    bundle = start_bundle(
        job.output,
        KIND,
        job.version,
        job.graphs.promises(),
        token_limit=encoder.token_limit,
        training={"encoder": Path(encoder.name).name, "pooling": str(model.pooling), "trained": "as published"},
        agreement={},
        licence=job.licence,
    )
    measured = examine_graphs(bundle, TextEncoder, job.reference.pairs, expected)
    return finish_bundle(bundle, measured, job.graphs.kept, {})
