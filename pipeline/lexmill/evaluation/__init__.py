"""Figures that can be trusted: one row an item of the test split, and everything else computed from the rows.

A metric, its interval, a paired test and a list of the worst items all come from the same rows
(`artifacts/predictions/`), so a model, an n-gram and a scikit-learn baseline are measured alike.
docs/evaluation.md says what each figure means.
"""
