"""What a model must beat to be worth its training, measured on the same rows with the same figures."""
