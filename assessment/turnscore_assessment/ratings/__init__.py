"""Ratings: the form of a study's file, reading and writing it, and the table that everything is computed from."""
