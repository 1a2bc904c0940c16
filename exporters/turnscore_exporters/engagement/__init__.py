"""The engagement classifier: data, recipes, training, report and bundle."""
