"""Loading: bundles and combinations that the settings name become scorers of this process, warmed up."""
