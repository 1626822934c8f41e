"""conf/ composed into params.yaml and dvc.yaml."""
