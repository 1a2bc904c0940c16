"""Converts original files of public sets to the form that our commands read. Judges, filters and trains nothing."""
