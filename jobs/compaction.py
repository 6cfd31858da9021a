"""Keep the newest record of each key in compacted topics.

    spark-submit --properties-file spark-conf/spark-defaults.conf jobs/compaction.py --lake LAKE --dry-run

`--help` shows the options; what they do is in `kafkalake.jobs.compaction.command`.
"""

from __future__ import annotations

import sys

from kafkalake.jobs.registry import run_script

if __name__ == "__main__":
    sys.exit(run_script("compaction", sys.argv[1:]))
