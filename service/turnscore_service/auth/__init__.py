"""Callers and their API keys."""
