"""Writes with `df.write.format("kafkalake")` and `writeStream`, each record exactly once.

With the jar, tasks write in the JVM (`KafkaLakeWrite.java`), and `driver` is all that they need of this. Without it, Python does.

driver          before the tasks, and after them: begin, commit, abort
write_options   the options of a write, validated
write_target    the topics as the broker describes them, and how large their batches are made
sink            the Python source's writers, on driver and executors
staged_rows     rows -> staged segment files
"""
