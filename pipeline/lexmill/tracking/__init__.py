"""The MLflow store: made ready under a lock, reached with clear errors, and linked to.

`store` prepares a store and opens a client, `links` builds addresses of its pages. Curves are local files first
(reports/curves/), sent in batches when a model is published.
A store that is down never costs a training: it is needed when something is published, and not before.
"""
