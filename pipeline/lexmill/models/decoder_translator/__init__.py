"""A translator without an encoder: source and target are one sequence."""
