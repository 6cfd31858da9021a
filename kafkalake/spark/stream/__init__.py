"""Streaming reads: `spark.readStream.format("kafkalake")`.

stream       the reader that Spark asks for offsets and tasks
plan         the tasks of a batch of a stream
process      the process that answers Spark, started sooner
checkpoint   offsets as Spark's own Kafka source writes them
refused      a stream that tells what is wrong with its options
"""
