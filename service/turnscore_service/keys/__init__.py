"""Callers and their API keys: who may call, for how many turns, and in whose name work is done."""
