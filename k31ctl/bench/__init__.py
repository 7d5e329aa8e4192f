"""Loads an endpoint over HTTP and measures what comes back."""
