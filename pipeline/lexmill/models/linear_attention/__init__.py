"""Language models whose layers keep a matrix as their state: the linear-attention family, and hybrids."""
