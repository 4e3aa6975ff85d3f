"""The result of an estimate: columns and summary, sentences, files."""
