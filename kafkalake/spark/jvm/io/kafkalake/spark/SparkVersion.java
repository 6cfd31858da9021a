package io.kafkalake.spark;

/**
 * The Spark that these classes are compiled for. Another one, whose interfaces differ, is refused in one sentence, with nothing but what
 * every Spark has: {@code kafkalake/spark/spark_version.py} does the same without this jar.
 */
final class SparkVersion {
  private static final String NEEDED = "4.2";

  private SparkVersion() {}

  static boolean isNeeded() {
    return org.apache.spark.package$.MODULE$.SPARK_VERSION().startsWith(NEEDED + ".");
  }

  static void require() {
    if (!isNeeded()) {
      throw new UnsupportedOperationException(
          "kafkalake needs Spark " + NEEDED + ", and this is Spark " + org.apache.spark.package$.MODULE$.SPARK_VERSION());
    }
  }
}
