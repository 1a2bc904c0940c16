"""The quality model: its data, negatives, training, calibration and export. Serves nothing."""
