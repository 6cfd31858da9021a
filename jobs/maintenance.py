"""Keep a lake's metadata tables small, and remove files that nothing needs any more.

    spark-submit --properties-file spark-conf/spark-defaults.conf jobs/maintenance.py --lake LAKE

`--help` shows the options; what they do is in `kafkalake.jobs.maintenance`.
"""

from __future__ import annotations

import sys

from kafkalake.jobs.registry import run_script

if __name__ == "__main__":
    sys.exit(run_script("maintenance", sys.argv[1:]))
