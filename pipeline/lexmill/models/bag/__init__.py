"""A bag of n-grams: which of them a text has, whatever their order."""
