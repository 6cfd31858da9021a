"""Writes with `df.write.format("kafkalake")` and `writeStream`, each record exactly once.

sink            the writers on driver and executors
write_options   the options of a write, validated
write_target    the topics as the broker describes them
staged_rows     rows -> staged segment files
"""
