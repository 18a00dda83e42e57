"""What computes results: an engine in this process, or a job on Spark."""
