"""One Python process a driver, which answers the jar: what tables there are, what they are made of, and how a scan is planned.

process     the loop: frames of JSON from the JVM, answered by threads
requests    what can be asked, and by which function it is answered
question    the type of a question
lakes       the Delta tables of the lakes that were asked about, kept open
tables      topics as tables: list, load
statements  what a statement changes, through the broker
tombstones  the statement that deletes keys of a compacted topic
scans       the tasks of a batch scan
aggregates  counts, and extremes of offsets and timestamps, from the metadata
query_snapshot   one snapshot for all scans of a query
columns     whether a read has the columns that are asked for
task_json   tasks as the jar reads them
writes      what a write's tasks must know, and the request that appends what they staged
changes     ranges of a topic's changes, and the tasks that read them
"""
