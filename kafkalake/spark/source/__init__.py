"""Batch reads: `spark.read.format("kafkalake")`.

source           the Python data source, the entry point of all scans
tasks            slices -> Spark's input partitions, and their reading on executors
hidden_tracebacks   errors without tracebacks of Python workers
installed_pyspark   import of the installed PySpark instead of Spark's zip file
"""
