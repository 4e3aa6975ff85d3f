"""What agents say to each other, in bytes."""
