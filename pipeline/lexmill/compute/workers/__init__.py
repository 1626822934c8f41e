"""Executors for the pieces of a data stage: this process, local processes, or a cluster through Prefect.

A stage cuts its input into pieces and defines the work on one (`Work`); an `Executor` yields the results in order.
Results do not depend on the executor.
"""
