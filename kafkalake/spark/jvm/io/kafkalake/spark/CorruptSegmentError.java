package io.kafkalake.spark;

/** Bytes of a segment that fail their checksum or their format; says what `kafkalake.errors.CorruptSegmentError` says. */
final class CorruptSegmentError extends RuntimeException {
  private static final long serialVersionUID = 1L;

  CorruptSegmentError(String path, long position, String reason) {
    super(path + ": at byte " + position + ": " + reason);
  }
}
