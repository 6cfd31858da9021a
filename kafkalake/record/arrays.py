"""The numpy arrays that kernels take and records are in. numba ignores annotations; what it compiles for is in `compiled(...)`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
