"""Whether an endpoint keeps the contract that this model needs, check by check, with evidence."""
