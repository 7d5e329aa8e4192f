"""The arithmetic of capacity: types and pure functions, no files, clock or environment."""
