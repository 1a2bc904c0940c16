"""Degradation: dialogues that are worse on purpose, by which a study finds out who rates in earnest."""
