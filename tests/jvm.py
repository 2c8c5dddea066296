"""How tests start a JVM."""

# Most of what a test lets Spark do is done for the first time. The quick compiler alone takes half
# of the processor time until a session is there, and leaves the other core to the tests.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
