"""The API: HTTP, WebSocket and gRPC requests in, replies out."""
