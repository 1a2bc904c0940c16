"""`make bench`: turnscore, the bare runtime and other servers on the same model, measured in one run."""

import turnscore_service as turnscore_service  # which keeps ONNX Runtime from reporting home, before it is imported
