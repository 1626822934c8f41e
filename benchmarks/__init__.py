"""The project beside its peers: both sides in one run on one machine, medians of repetitions taken in turn."""
