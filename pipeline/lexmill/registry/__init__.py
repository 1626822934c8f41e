"""Packages of trained models, and their way into MLflow's registry and out again.

`package` writes a model's package (a function of its inputs), `card` its description; `publish` brings packages to
MLflow, once each, and `promotion` decides whether a new version becomes the champion; `loader` and `predictor` run a
package's model, and `use` finds the champions and runs them.
"""
