package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** Rows that the planner answers, on the driver: asked for once, when Spark first wants them. */
final class JsonScan implements LocalScan {
  private final String description;
  private final StructType all;
  private final StructType wanted;
  private final Supplier<JsonNode> answer;
  private InternalRow[] rows;

  /** @param answer lists with values of the columns `all`, of which `wanted` are read */
  JsonScan(String description, StructType all, StructType wanted, Supplier<JsonNode> answer) {
    this.description = description;
    this.all = all;
    this.wanted = wanted;
    this.answer = answer;
  }

  @Override
  public StructType readSchema() {
    return wanted;
  }

  @Override
  public String description() {
    return description;
  }

  @Override
  public synchronized InternalRow[] rows() {
    if (rows == null) {
      rows = JsonRows.of(answer.get(), all, wanted);
    }
    return rows;
  }
}
