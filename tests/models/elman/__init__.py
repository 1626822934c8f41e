"""The recurrent network of Elman (1990)."""
