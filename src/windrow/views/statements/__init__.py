"""SQL, statement by statement: parsed by Spark, done by whoever knows how."""
