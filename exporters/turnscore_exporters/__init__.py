"""Checkpoints to bundles: training, ONNX export and parity. The only home of torch and transformers."""
