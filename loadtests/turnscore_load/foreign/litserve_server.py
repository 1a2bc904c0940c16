"""A LitServe server with batching on, as its documentation teaches; runs in an environment of its own.

python litserve_server.py PORT        BENCH_GRAPH and BENCH_TOKENIZER name the files
"""

import os
import sys

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import: ONNX Runtime reports home otherwise

import litserve
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

_ROW_LIMIT = 128


class EngagementAPI(litserve.LitAPI):
    """Scores turns."""

    def setup(self, device):
        self._session = onnxruntime.InferenceSession(os.environ["BENCH_GRAPH"], providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(os.environ["BENCH_TOKENIZER"])
        self._tokenizer.enable_truncation(_ROW_LIMIT)
        self._tokenizer.enable_padding()

    def decode_request(self, request):
        return request["query"], request["reply"]

    def predict(self, turns):
        encoded = self._tokenizer.encode_batch([text for turn in turns for text in turn])
        query_row = np.arange(0, len(encoded), 2)
        feeds = {
            "input_ids": np.array([each.ids for each in encoded]),
            "attention_mask": np.array([each.attention_mask for each in encoded]),
            "query_row": query_row,
            "reply_row": query_row + 1,
        }
        return self._session.run(["probability"], feeds)[0].tolist()

    def encode_response(self, value):
        return {"value": value}


if __name__ == "__main__":
    api = EngagementAPI(max_batch_size=32, batch_timeout=0.005)
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=1)
    server.run(port=int(sys.argv[1]), host="127.0.0.1", generate_client_file=False)
