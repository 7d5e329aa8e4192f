"""Results, failures and progress as text: the only room that prints."""
