"""Records as Arrow: the schema, the batch headers and the Arrow message that a segment is made of.

Leaf package: imports nothing of kafkalake but `errors`. The format is described in `layout.py`, written and checked by
`message.py`, both in compiled code (`compiled.py`), because it runs once a batch on every path of the broker.
"""
