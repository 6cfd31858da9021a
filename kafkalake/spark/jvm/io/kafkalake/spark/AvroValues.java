package io.kafkalake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;

/**
 * How the values of a topic are read and written that are Avro, as the planner has answered.
 *
 * @param schema of a record, in JSON
 * @param schemaId of Confluent's header, which values begin with; null: they have no header
 */
record AvroValues(String schema, Integer schemaId) implements Serializable {
  /** A zero byte and four of the schema's id. */
  static final int HEADER_BYTES = 5;

  /** Null where the values are JSON. */
  static AvroValues of(JsonNode answer) {
    if (answer.isNull()) {
      return null;
    }
    JsonNode id = answer.get("schema_id");
    return new AvroValues(answer.get("schema").textValue(), id.isNull() ? null : id.intValue());
  }

  /** The record; the planner has checked the schema. */
  Schema parse() {
    return new Schema.Parser(NameValidator.NO_VALIDATION).setValidateDefaults(false).parse(schema);
  }

  /** The type of the values of a union that are not null, the wider of two numbers; of others themselves. */
  static Schema notNull(Schema schema) {
    if (!schema.isUnion()) {
      return schema;
    }
    Schema found = schema;
    for (Schema branch : schema.getTypes()) {
      Schema.Type type = branch.getType();
      if (type != Schema.Type.NULL && (found == schema || type == Schema.Type.LONG || type == Schema.Type.DOUBLE)) {
        found = branch;
      }
    }
    return found;
  }

  /** Whether the numbers of a timestamp are milliseconds. */
  static boolean isMillis(Schema schema) {
    String logical = schema.getProp("logicalType");
    return logical != null && logical.endsWith("timestamp-millis");
  }
}
