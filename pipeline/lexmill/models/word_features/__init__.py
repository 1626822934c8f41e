"""Features of words as text, such as the word itself or its ending, each with a row of a table."""
