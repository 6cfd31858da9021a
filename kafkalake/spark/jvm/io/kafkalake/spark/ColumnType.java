package io.kafkalake.spark;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** The types of a topic's columns by their names in SQL: the first use of Spark's own parser takes a tenth of a session's first query. */
final class ColumnType {
  private static final DataType HEADER =
      DataTypes.createStructType(
          List.of(
              DataTypes.createStructField("key", DataTypes.StringType, true), DataTypes.createStructField("value", DataTypes.BinaryType, true)));
  private static final Map<String, DataType> NAMED =
      Map.ofEntries(
          Map.entry("STRING", DataTypes.StringType),
          Map.entry("BINARY", DataTypes.BinaryType),
          Map.entry("BOOLEAN", DataTypes.BooleanType),
          Map.entry("TINYINT", DataTypes.ByteType),
          Map.entry("SMALLINT", DataTypes.ShortType),
          Map.entry("INT", DataTypes.IntegerType),
          Map.entry("BIGINT", DataTypes.LongType),
          Map.entry("FLOAT", DataTypes.FloatType),
          Map.entry("DOUBLE", DataTypes.DoubleType),
          Map.entry("DATE", DataTypes.DateType),
          Map.entry("TIMESTAMP", DataTypes.TimestampType),
          Map.entry("TIMESTAMP_NTZ", DataTypes.TimestampNTZType),
          Map.entry("ARRAY<STRUCT<key: STRING, value: BINARY>>", DataTypes.createArrayType(HEADER)));

  private ColumnType() {}

  static DataType of(String sql) {
    DataType named = NAMED.get(sql);
    return named != null ? named : DataType.fromDDL(sql);
  }
}
