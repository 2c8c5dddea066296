"""Tables, and the statements that change them: each is one batch of updates."""
