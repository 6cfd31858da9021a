package io.kafkalake.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** A number that Spark's UI shows of a scan: the driver's, or the sum over its tasks. */
public final class ScanMetric extends CustomSumMetric {
  static final ScanMetric SEGMENTS_READ = new ScanMetric("segmentsRead", "segments read");
  static final ScanMetric SEGMENTS_SKIPPED = new ScanMetric("segmentsSkipped", "segments skipped");
  static final ScanMetric PLANNING_TIME = new ScanMetric("planningTime", "time to plan (ms)");
  static final ScanMetric BYTES_READ = new ScanMetric("bytesRead", "bytes read");
  static final ScanMetric RECORDS_LEFT_OUT = new ScanMetric("recordsLeftOut", "records read and left out");
  static final ScanMetric VERIFICATION_TIME = new ScanMetric("verificationTime", "time to verify and decompress (ms)");

  private final String name;
  private final String description;

  /** For Spark's UI, which sums up with an object of its own. */
  public ScanMetric() {
    this("", "");
  }

  private ScanMetric(String name, String description) {
    this.name = name;
    this.description = description;
  }

  static CustomMetric[] all() {
    return new CustomMetric[] {SEGMENTS_READ, SEGMENTS_SKIPPED, PLANNING_TIME, BYTES_READ, RECORDS_LEFT_OUT, VERIFICATION_TIME};
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String description() {
    return description;
  }

  /** A value of it. */
  CustomTaskMetric of(long value) {
    return new CustomTaskMetric() {
      @Override
      public String name() {
        return name;
      }

      @Override
      public long value() {
        return value;
      }
    };
  }
}
