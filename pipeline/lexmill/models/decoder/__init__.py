"""A decoder-only Transformer whose parts are options."""
