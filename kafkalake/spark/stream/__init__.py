"""Streaming reads: `spark.readStream.format("kafkalake")`.

stream       the reader that Spark calls for offsets and tasks
plan         the tasks of a batch of a stream
process      the process that serves Spark, with a faster start
checkpoint   offsets as Spark's own Kafka source writes them
refused      a stream that reports invalid options
"""
