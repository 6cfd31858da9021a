"""Writes: `df.write.format("kafkalake")` and `writeStream`, each record once.

sink            the writers on driver and executors
write_options   what the user asked for, checked
write_target    the topics as the broker describes them
staged_rows     rows -> staged segment files
"""
