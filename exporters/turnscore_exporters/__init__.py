"""Checkpoints to bundles: training, ONNX export and parity. The only home of torch and transformers."""

import turnscore_service as turnscore_service  # which keeps ONNX Runtime from reporting home, before it is imported
