"""Writes tiny random checkpoints of the real architectures; needs neither torch nor numpy."""
