"""The lake's metadata: Delta tables that the broker writes and that Spark reads without it.

`tables` the Delta tables and their rows; `store` what the broker asks (a protocol), `delta` what answers;
`changes` what a write makes of the rows; `lease` who runs a broker; `paths` the layout.
"""
