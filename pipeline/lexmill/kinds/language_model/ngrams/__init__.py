"""N-gram models, smoothed in three ways."""
