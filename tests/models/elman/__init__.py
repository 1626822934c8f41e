"""The recurrent network of Elman (1990): a family that only a test puts beside the others."""
