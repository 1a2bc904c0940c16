"""The page on all trainings and its sections, made from reports alone. Trains and measures nothing."""
