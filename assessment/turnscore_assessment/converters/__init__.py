"""Original files of public sets in the form that our commands read. Judges, filters and trains nothing."""
