"""Ablation: trainings of quality that each lack one kind of made-up responses."""
