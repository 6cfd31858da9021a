"""Stands for the package where this directory comes first in `PYTHONPATH`: as for users, who do not have it.

kio's types import it where it is there, which is a sixth of what a broker's start costs (`kafka_reference.as_users_have_it`).
"""

raise ImportError("a development dependency")
