"""The OpenAI-compatible service in front of a generator; it knows no tensor."""
