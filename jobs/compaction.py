"""Keep the newest record of each key in compacted topics.

    spark-submit --properties-file spark-conf/spark-defaults.conf jobs/compaction.py --lake LAKE --dry-run

`--help` shows the options; what they do is in `kafkalake.spark.compaction`.
"""

from __future__ import annotations

import sys

from kafkalake.spark.compaction import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
