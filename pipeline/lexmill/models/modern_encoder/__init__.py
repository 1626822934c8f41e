"""An encoder with what Transformers have learned since BERT."""
