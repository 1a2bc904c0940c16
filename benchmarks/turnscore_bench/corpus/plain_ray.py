"""Plain Ray Data: what a team would write first, with the service's graph and tokenizer and nothing else of it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
import ray
from pyarrow import parquet
from tokenizers import Tokenizer
from turnscore_core.inference.devices import usable_cpus
from turnscore_models import read_bundle

from turnscore_bench.corpus.dialogues import read_dialogues

BATCH_ROWS = 128


class PlainScorer:
    """A session and a tokenizer in an actor; every batch is padded to its longest text."""

    def __init__(self, graph: str, tokenizer: str, token_limit: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(tokenizer)
        self._tokenizer.enable_truncation(token_limit)
        self._tokenizer.enable_padding()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        queries, replies = list(batch["query"]), list(batch["reply"])
        encoded = self._tokenizer.encode_batch(queries + replies)
        feeds = {
            "input_ids": np.array([each.ids for each in encoded], dtype=np.int64),
            "attention_mask": np.array([each.attention_mask for each in encoded], dtype=np.int64),
            "query_row": np.arange(len(queries)),
            "reply_row": len(queries) + np.arange(len(replies)),
        }
        return {"value": self._session.run(["probability"], feeds)[0], "place": batch["place"]}


def score_plainly(source: Path, output: Path, bundle: Path) -> int:
    """Turns as rows of a table, scored in the order in which they come; how many there were."""
    read = read_bundle(bundle)
    graph = read.path_of(read.manifest.graphs["cpu-int8"].file)
    rows = [
        {"query": dialogue.turns[place - 1].text, "reply": turn.text}
        for dialogue in read_dialogues(source)
        for place, turn in enumerate(dialogue.turns)
        if turn.speaker == "system"
    ]
    output.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([{**row, "place": place} for place, row in enumerate(rows)])
    parquet.write_table(table, output / "rows.parquet")
    cpus = usable_cpus()
    ray.init(address="local", num_cpus=cpus + 3, include_dashboard=False, _node_ip_address="127.0.0.1")
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.read_parquet(str(output / "rows.parquet")).repartition(max(1, len(rows) // 2000))
    scored = dataset.map_batches(
        PlainScorer,
        fn_constructor_args=(str(graph), str(read.path_of(read.manifest.tokenizer)), read.manifest.token_limit),
        batch_size=BATCH_ROWS,
        compute=ray.data.ActorPoolStrategy(size=cpus),
        num_cpus=1,
    )
    scored.write_parquet(str(output / "scores"))
    ray.shutdown()
    return len(rows)
