"""Records as Arrow: the schema, the batch headers and the Arrow messages of segments.

Leaf package: imports nothing of kafkalake but `errors`. `layout.py` describes the format. `message.py` writes and checks it in
compiled code (`compiled.py`), because it runs once per batch on every path of the broker.
"""
