"""How tests start a JVM."""

# Most of what a test lets Spark do is done for the first time: the quick compiler alone will do.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
