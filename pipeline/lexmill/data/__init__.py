"""What a step of training is fed: token shards, data order, batches.

Every batch is a pure function of (seed, step): there is no iterator state to save, a resumed run asks for the
step it stopped at, and any number of ranks share one global batch.
"""
