"""Batch reads: `spark.read.format("kafkalake")`.

source           the Python data source; all scans begin here
filters          pushed filters -> `reader.predicate`
tasks            slices -> Spark's input partitions, and their reading on executors
query_snapshot   one snapshot for all scans of a query
plain_errors     errors without tracebacks of Python workers
installed_pyspark   the PySpark that is installed, found without Spark's zip file
"""
