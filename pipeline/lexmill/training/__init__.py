"""Training: one engine for all models. `task` says what a training is, `engine.fit` does it."""
