"""What the `lexmill` commands do; `lexmill.cli` only reads their options."""
