"""The chat format of Kimi K3 and K3.1 Pro: prompts out of requests, answers out of tokens."""
