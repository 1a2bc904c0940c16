"""Degradation: dialogues that are worse on purpose, by which a study tells who rates in earnest."""
