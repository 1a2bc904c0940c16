"""The page of all trainings and its sections, of reports alone. Trains and measures nothing."""
