"""The data of a training step: token shards, data order, batches.

Every batch is a pure function of (seed, step): there is no iterator state to save, a resumed run continues with its
next step, and any number of ranks share one global batch.
"""
