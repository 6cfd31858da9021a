"""The lake's metadata: Delta tables written by the broker and read by Spark without it.

`tables`: the Delta tables and their rows. `store`: the broker's interface (a protocol), implemented by `delta`. `changes`: pure
row updates. `catalog`: which rows count. `lease`: broker leases. `paths`: the layout.
"""
