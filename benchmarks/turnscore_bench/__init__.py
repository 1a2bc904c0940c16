"""`make bench`: turnscore, the bare runtime and other servers on the same model, measured in one run."""

import turnscore_core as turnscore_core  # which keeps ONNX Runtime from reporting home, before it is imported
