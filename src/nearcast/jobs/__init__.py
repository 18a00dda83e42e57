"""Jobs: everything about a job on Spark that needs no PySpark.

    job_file        the job file                             job             the configuration that all workers share
    inputs          vocabulary, social graph and routing     client          files to and from a running job
    folder          local and remote folders                 reports         reports of shards, as files
    sink_files      committed files of a sink                progress        what the reports add up to

    frame           what travels through the shuffle         block           packed messages and updates
    validate        bad rows of a block, with reasons        shard           what a shard does with its frames
    shard_state     the state of a shard and its files       engine_cache    the engine of a shard between batches
    plugins         kinds and partitioners of a job

The service imports this package and not `nearcast.spark`.
"""
