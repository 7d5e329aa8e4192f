"""Launch files as they are written: the commands in them and where every word stands."""
