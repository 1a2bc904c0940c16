"""Conversations over WebSockets: the endpoint, and the protocol beneath it."""
