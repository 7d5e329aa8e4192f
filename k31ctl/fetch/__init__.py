"""Checkpoints on disk: what their headers hold, and whether it is what the model needs."""
