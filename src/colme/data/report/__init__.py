"""What is said of a table: the result, sentences, files."""
