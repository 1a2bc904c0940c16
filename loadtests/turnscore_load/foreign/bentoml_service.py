"""A plain BentoML service with a batchable endpoint, as its documentation teaches; runs in an environment of its own.

BENCH_GRAPH and BENCH_TOKENIZER name the files; BENCH_QUIET=1 switches access log, metrics and tracing off.
"""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import: ONNX Runtime reports home otherwise

import bentoml
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

_QUIET = {"tracing": {"excluded_urls": ".*"}, "metrics": {"enabled": False}, "logging": {"access": {"enabled": False}}}


@bentoml.service(
    resources={"cpu": str(os.cpu_count())},
    traffic={"timeout": 60},
    **(_QUIET if os.environ.get("BENCH_QUIET") == "1" else {}),
)
class Engagement:
    """Scores turns."""

    def __init__(self) -> None:
        self._session = onnxruntime.InferenceSession(os.environ["BENCH_GRAPH"], providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(os.environ["BENCH_TOKENIZER"])
        self._tokenizer.enable_truncation(128)
        self._tokenizer.enable_padding()

    @bentoml.api(batchable=True, max_batch_size=32)
    def score(self, turns: list[dict[str, str]]) -> list[float]:
        """The probability of each turn, a `query` and its `reply`; turns of several callers arrive together."""
        encoded = self._tokenizer.encode_batch([text for turn in turns for text in (turn["query"], turn["reply"])])
        query_row = np.arange(0, len(encoded), 2)
        feeds = {
            "input_ids": np.array([each.ids for each in encoded]),
            "attention_mask": np.array([each.attention_mask for each in encoded]),
            "query_row": query_row,
            "reply_row": query_row + 1,
        }
        return self._session.run(["probability"], feeds)[0].tolist()
