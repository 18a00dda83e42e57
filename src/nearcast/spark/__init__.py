"""The pipeline on Spark; so far, the Java it will run on: see `java`."""
