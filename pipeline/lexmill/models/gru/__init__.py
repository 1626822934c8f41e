"""The language model of gated recurrent units."""
