"""Blocks that several architectures share."""
