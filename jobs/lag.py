"""Report how far every consumer group is behind, with the broker up or down.

    spark-submit --properties-file spark-conf/spark-defaults.conf jobs/lag.py --lake LAKE --html lag.html --max-lag-seconds 600

`--help` shows the options; what they do is in `kafkalake.jobs.lag.command`.
"""

from __future__ import annotations

import sys

from kafkalake.jobs.registry import run_script

if __name__ == "__main__":
    sys.exit(run_script("lag", sys.argv[1:]))
