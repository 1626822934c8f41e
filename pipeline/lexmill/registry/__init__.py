"""Packages of trained models, in MLflow's registry and out of it.

`package` writes a model's package (a function of its inputs), `card` its description; `publish` registers packages in
MLflow, once each, and `promotion` decides whether a new version becomes the champion; `loader` loads a package's model,
and `use` finds and loads the champions.
"""
