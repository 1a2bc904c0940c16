"""Dialogues and turns that people judged, as they are published. Reads and checks; measures nothing."""
