package io.kafkalake.spark;

import java.util.OptionalLong;
import org.apache.spark.sql.connector.read.Statistics;

/** The size of a scan, as Spark decides by it; empty where nothing is known. */
final class ScanSize implements Statistics {
  static final ScanSize UNKNOWN = new ScanSize(OptionalLong.empty(), OptionalLong.empty());
  private final OptionalLong bytes;
  private final OptionalLong records;

  private ScanSize(OptionalLong bytes, OptionalLong records) {
    this.bytes = bytes;
    this.records = records;
  }

  /** Upper bounds of what is read. */
  static ScanSize of(long bytes, long records) {
    return new ScanSize(OptionalLong.of(bytes), OptionalLong.of(records));
  }

  @Override
  public OptionalLong sizeInBytes() {
    return bytes;
  }

  @Override
  public OptionalLong numRows() {
    return records;
  }
}
