"""The smoke-test ladder of the embedded engine: steps in a child, and who watches over it."""
