"""Evaluation: one row for each item of the test split, and everything else computed from the rows.

Metrics, intervals, paired tests and lists of the worst items all come from the same rows (`artifacts/predictions/`), so
models, n-grams and scikit-learn baselines are measured alike. docs/evaluation.md explains each metric.
"""
