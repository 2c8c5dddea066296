"""What makes two rows equal, and how rows are hashed and ordered."""
