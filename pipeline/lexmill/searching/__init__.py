"""Searches of hyper-parameters: a space as data, trials as trainings of their own, the best as choices of conf/.

`space` reads conf/search/*.yaml and checks it, `study` draws trials and ends hopeless ones (Optuna), `scratch` runs a
trial beside the workspace, `search` is the loop, `adopting` says how to take what was found. Only valid data decide.
"""
