"""Inference: numpy, ONNX Runtime and tokenizers only. Knows no server, no request, no score."""
