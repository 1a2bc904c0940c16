"""The doors: HTTP, WebSocket and gRPC in, replies out. They decode, call the pipeline, encode; they score nothing."""
