"""The proof of one version of a bundle, as a start proves it. Says whether it holds, and serves nothing.

`python -m turnscore_service.lifecycle.proof.proof` reads an order from standard input and prints the result as JSON:
`process.py` runs it beside a service.
"""

import ctypes
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, JsonValue
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.onnx_library import DeviceError
from turnscore_core.scorers.loaded_scorer import prove_scorer
from turnscore_models import Bundle, BundleError, GraphVariant, read_bundle

_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that this process gets when the thread that started it ends."""
_OOM_SCORE = Path("/proc/self/oom_score_adj")
_ENDED_FIRST = "1000"  # proc_pid_oom_score_adj(5): of all processes


class ProofOrder(BaseModel):
    """What is to be proved: a graph of the bundle in a folder, with the options of a deployment."""

    folder: Path
    options: dict[str, JsonValue]
    variant: GraphVariant


class ProofResult(BaseModel):
    """The digest of the bundle that holds, or why it does not: exactly one of the two."""

    digest: str = ""
    refusal: str = ""


def prove(order: ProofOrder) -> ProofResult:
    """Checks every checksum, loads the graph on the CPU, in one thread, and scores the self-test turns."""
    try:
        bundle = with_options(read_bundle(order.folder), order.options)
        prove_scorer(bundle, order.variant, concurrency=Concurrency())
    except (BundleError, DeviceError) as error:
        return ProofResult(refusal=str(error))
    return ProofResult(digest=bundle.digest)


def with_options(bundle: Bundle, options: dict[str, JsonValue]) -> Bundle:
    """The bundle as if its manifest had these options, and no others; its digest is then another."""
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"options": options}))


def end_with_parent() -> None:
    """Has the system end this process with the one that waits for it, and before any other where memory is short.

    Linux does; elsewhere the process ends when its proof does.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError):
        _OOM_SCORE.write_text(_ENDED_FIRST)


def main() -> None:
    """The whole process. What else fails ends it with a traceback."""
    end_with_parent()
    order = ProofOrder.model_validate_json(sys.stdin.buffer.read())
    sys.stdout.write(prove(order).model_dump_json() + "\n")


if __name__ == "__main__":
    main()
