"""Tables, sources and maintained views of a project, in SQL, and the history that they share."""
