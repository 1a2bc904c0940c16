"""Metrics against people: how scorers' and other numbers go with what a study's workers thought."""
