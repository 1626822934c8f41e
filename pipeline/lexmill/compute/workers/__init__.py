"""Where the pieces of a data stage are worked on: here, in processes beside, or on a cluster through Prefect.

A stage cuts its input into pieces and says what is done with one (`Work`); an `Executor` gives the results in the
pieces' order. Nothing of where, how many or how often enters a result.
"""
