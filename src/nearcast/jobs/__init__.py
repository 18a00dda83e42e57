"""Jobs: everything about a job on Spark that needs no PySpark.

    job_file        the job file                             job             the configuration that all workers share
    inputs          vocabulary, social graph and routing     client          files to and from a running job
    folder          local and remote folders                 reports         reports of shards, as files
    sink_files      committed files of a sink                progress        what the reports add up to

    frame           what travels through the shuffle         block           packed messages and updates
    message_rows    rows that publish, retract or replace    edge_rows       rows that add or remove edges
    validate        bad rows of a block, with reasons        shard           what a shard does with its frames
    batch_time      the time of a batch                      rejections      rows that only a shard can reject
    operations, edge_operations, batch_operations            what is applied among messages
    operation_rejections    subscriptions that shards reject static_rejections    the same for static frames
    shard_state     the state of a shard and its files       engine_cache    the engine of a shard between batches
    plugins         kinds and partitioners of a job          temporary_folder  removed with its process, or later
    refresh         a request to read a table again

The service imports this package and not `nearcast.spark`.
"""
