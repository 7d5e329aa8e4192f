"""Runs the model on one node, in plain torch: for smoke tests, numerics and development."""
