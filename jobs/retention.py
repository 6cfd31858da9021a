"""Remove the segments that retention.ms and retention.bytes no longer keep.

    spark-submit --properties-file spark-conf/spark-defaults.conf jobs/retention.py --lake LAKE --dry-run

`--help` shows the options; what they do is in `kafkalake.jobs.retention`.
"""

from __future__ import annotations

import sys

from kafkalake.jobs.registry import run_script

if __name__ == "__main__":
    sys.exit(run_script("retention", sys.argv[1:]))
