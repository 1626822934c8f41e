"""Where a stage runs: its resources, its lease of this machine's devices, and the launchers that run it elsewhere."""
