"""Sources: data that others write, as relations. What changed is found without reading the rest."""
