"""What every training shares: the loop, encoders, checkpoints, the files of a run."""
