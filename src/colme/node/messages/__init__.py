"""Wire formats: records, control messages, membership messages."""
