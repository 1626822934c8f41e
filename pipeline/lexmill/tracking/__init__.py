"""The MLflow store: made ready under a lock, reached with clear errors, and linked to.

`store` prepares a store and opens a client, `links` builds addresses of its pages, `points` brings what a training has
written down into its run, `live` does so from a process beside it. A store that is down never costs a training: what it
missed is a local file, which publishing sends.
"""
