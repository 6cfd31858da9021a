"""Copy a topic into a Delta table.

    spark-submit --properties-file spark-conf/spark-defaults.conf jobs/consume.py --lake LAKE --topic clicks --output DELTA_TABLE

`--help` shows the options; what they do is in `kafkalake.jobs.consume.command`.
"""

from __future__ import annotations

import sys

from kafkalake.jobs.registry import run_script

if __name__ == "__main__":
    sys.exit(run_script("consume", sys.argv[1:]))
