package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A procedure of a lake, `CALL lake.system.retention(topic => 'clicks', dry_run => true)`: a job, carried out in the planning process.
 *
 * Its parameters and the columns of its rows are the planner's (`kafkalake/spark/planner/procedures.py`).
 */
final class LakeProcedure implements UnboundProcedure, BoundProcedure {
  private final JsonNode definition;
  private final ObjectNode question;
  private final String timeout;

  /**
   * @param question with the lake
   * @param timeout the time that a run may take, as Spark's settings say times
   */
  LakeProcedure(JsonNode definition, ObjectNode question, String timeout) {
    this.definition = definition;
    this.question = question;
    this.timeout = timeout;
  }

  @Override
  public String name() {
    return definition.get("name").textValue();
  }

  /** With the parameters, which Spark's DESCRIBE PROCEDURE does not show. */
  @Override
  public String description() {
    StringBuilder text = new StringBuilder(definition.get("description").textValue()).append(" Parameters:");
    for (JsonNode parameter : definition.get("parameters")) {
      JsonNode standard = parameter.get("default");
      text.append("\n  ").append(parameter.get("name").textValue()).append(' ').append(parameter.get("type").textValue());
      text.append(standard.isNull() ? "" : " DEFAULT " + standard.textValue()).append(": ").append(parameter.get("comment").textValue());
    }
    return text.toString();
  }

  @Override
  public BoundProcedure bind(StructType given) {
    return this;
  }

  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public ProcedureParameter[] parameters() {
    JsonNode all = definition.get("parameters");
    ProcedureParameter[] found = new ProcedureParameter[all.size()];
    for (int i = 0; i < found.length; i++) {
      JsonNode parameter = all.get(i);
      ProcedureParameter.Builder built =
          ProcedureParameter.in(parameter.get("name").textValue(), type(parameter)).comment(parameter.get("comment").textValue());
      if (!parameter.get("default").isNull()) {
        built.defaultValue(parameter.get("default").textValue());
      }
      found[i] = built.build();
    }
    return found;
  }

  private static DataType type(JsonNode parameter) {
    return DataType.fromDDL(parameter.get("type").textValue());
  }

  @Override
  public Iterator<Scan> call(InternalRow input) {
    ObjectNode asked = question.deepCopy().put("procedure", name()).put("time_zone", SQLConf.get().sessionLocalTimeZone());
    if (definition.get("needs_session").booleanValue()) {
      DriverGateway.putInto(asked);
    }
    ObjectNode arguments = asked.putObject("arguments");
    JsonNode parameters = definition.get("parameters");
    for (int i = 0; i < parameters.size(); i++) {
      String name = parameters.get(i).get("name").textValue();
      if (input.isNullAt(i)) {
        arguments.putNull(name);
      } else {
        arguments.putPOJO(name, plain(input.get(i, type(parameters.get(i)))));
      }
    }
    JsonNode answer;
    try {
      answer = Planner.run(name(), asked, timeout);
    } catch (PlannerException error) {
      throw error.forUsers();
    }
    StructType columns = StructType.fromDDL(definition.get("columns").textValue());
    return List.<Scan>of(new JsonScan(name(), columns, columns, () -> answer)).iterator();
  }

  /** The value as Jackson writes it. */
  private static Object plain(Object value) {
    return value instanceof Number || value instanceof Boolean ? value : value.toString();
  }
}
