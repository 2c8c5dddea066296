"""How tests start a JVM."""

# Most of what a test lets Spark do is done for the first time: the quick compiler alone will do.
# A long run fills the 48 MiB that it has for compiled code, and compiles again what it had to drop.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
