"""The bidirectional recurrent encoder."""
