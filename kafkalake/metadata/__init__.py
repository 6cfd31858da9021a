"""The lake's metadata: Delta tables that the broker writes and that Spark reads without it.

`schemas` the rows; `store` what the broker asks (a protocol) with `delta` and `memory` behind it; `changes` what a write
makes of the rows; `publisher` when the logs' state is copied into Delta; `lease` who runs a broker; `paths` the layout.
"""
