"""ONNX Runtime behind one small interface: named arrays in, named arrays out. `run` may be called from any thread."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """Name, type (ONNX Runtime's word, `tensor(int64)`) and shape of an input or output."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class Backend(Protocol):
    """What a scorer needs of a runtime."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch. Raises whatever the runtime raises."""


class OnnxBackend:
    """One graph in one ONNX Runtime session on the CPU."""

    def __init__(self, graph: Path, *, threads: int) -> None:
        """Loads the graph. Raises RuntimeError where ONNX Runtime refuses it."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Idle threads of the pool would otherwise spin and take the CPU from the event loop and the tokenizer.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                graph, sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime raises classes of its own that share no base
            raise RuntimeError(f"ONNX Runtime cannot load {graph.name}: {error}") from error
        self.inputs = tuple(_describe(each) for each in self._session.get_inputs())
        self.outputs = tuple(_describe(each) for each in self._session.get_outputs())

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs one batch; the arrays' first dimensions are the graph's own. Releases the GIL."""
        names = [output.name for output in self.outputs]
        return {
            name: np.asarray(values) for name, values in zip(names, self._session.run(names, dict(feeds)), strict=True)
        }


def _describe(node: Any) -> Tensor:
    return Tensor(node.name, node.type, tuple(node.shape))
