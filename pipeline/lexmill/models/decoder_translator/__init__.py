"""Sequence to sequence without an encoder: source and target are one sequence."""
