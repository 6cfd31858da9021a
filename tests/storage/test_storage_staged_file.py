"""Staged files: what was written is read, and what is damaged or forged is refused."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from record_batches import build_batch

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.batch import RecordBatch
from kafkalake.storage.staged_file import StagedReader, StagedWriter, batch_fault
from kafkalake.storage.staging import (
    ASKED_FILE,
    commits_path,
    remove_staged,
    staging_path,
    stale_staging,
)
