"""Scorers: one file per scorer, found by the kind of bundle it reads. Turn text into arrays and arrays into scores."""
