"""The cluster as a value and the decisions on it, without input or output.

`image` is the value: a version of the table `cluster`, which a `control_store` loads and commits. Every decision is a pure function
from an image to the next one, used alike by the controller, by the simulation and by the check of all states.
"""
