package io.kafkalake.spark;

import java.util.Arrays;
import java.util.List;
import org.apache.avro.JsonProperties;
import org.apache.avro.Schema;

/**
 * Checks that bytes are one record of a schema, and finds some of its fields, in one pass that builds nothing.
 *
 * The fields at the end whose default is null may be lacking: the record was written before they were added.
 */
final class AvroScanner {
  /** Where a field is not. */
  static final int ABSENT = -1;

  private static final int BOOLEAN_BYTES = 1;

  private final Skip[] skips;
  /** By field, which of the wanted names it has; -1: none. */
  private final int[] numbers;
  private final int required;

  /** By name, where its value begins; `ABSENT` where there is none. */
  final int[] begins;

  /** @param names of the fields to find */
  AvroScanner(Schema record, List<String> names) {
    List<Schema.Field> fields = record.getFields();
    skips = new Skip[fields.size()];
    numbers = new int[skips.length];
    int least = 0;
    for (int i = 0; i < skips.length; i++) {
      Schema.Field field = fields.get(i);
      skips[i] = Skip.of(field.schema());
      numbers[i] = names.indexOf(field.name());
      boolean isOptional = field.schema().isNullable() && field.hasDefaultValue() && field.defaultVal() == JsonProperties.NULL_VALUE;
      least = isOptional ? least : i + 1;
    }
    required = least;
    begins = new int[names.size()];
  }

  /** Returns whether the bytes of `in` are a record, and finds its fields. */
  boolean scan(AvroInput in) {
    Arrays.fill(begins, ABSENT);
    for (int i = 0; i < skips.length; i++) {
      if (in.at == in.end && i >= required) {
        return !in.isBroken();
      }
      if (numbers[i] >= 0) {
        begins[numbers[i]] = in.at;
      }
      skips[i].skip(in);
    }
    return in.at == in.end && !in.isBroken();
  }

  /** Passes over a value of one type; sets the input broken where there is none. */
  interface Skip {
    void skip(AvroInput in);

    static Skip of(Schema schema) {
      switch (schema.getType()) {
        case NULL:
          return in -> {};
        case BOOLEAN:
          return in -> in.skip(BOOLEAN_BYTES);
        case INT:
        case LONG:
        case ENUM:
          return AvroInput::readLong;
        case FLOAT:
          return in -> in.skip(Float.BYTES);
        case DOUBLE:
          return in -> in.skip(Double.BYTES);
        case STRING:
        case BYTES:
          return in -> in.skip(in.readLength());
        case FIXED:
          int size = schema.getFixedSize();
          return in -> in.skip(size);
        case ARRAY:
          Skip element = of(schema.getElementType());
          return in -> skipBlocks(in, element);
        case MAP:
          Skip value = of(schema.getValueType());
          return in ->
              skipBlocks(
                  in,
                  pair -> {
                    pair.skip(pair.readLength());
                    value.skip(pair);
                  });
        case UNION:
          return ofUnion(schema.getTypes().stream().map(Skip::of).toArray(Skip[]::new));
        default:
          Skip[] fields = schema.getFields().stream().map(field -> of(field.schema())).toArray(Skip[]::new);
          return in -> {
            for (Skip field : fields) {
              field.skip(in);
            }
          };
      }
    }

    private static Skip ofUnion(Skip[] branches) {
      return in -> {
        long branch = in.readLong();
        if (branch < 0 || branch >= branches.length) {
          in.setBroken();
        } else {
          branches[(int) branch].skip(in);
        }
      };
    }

    private static void skipBlocks(AvroInput in, Skip element) {
      for (int count = in.readBlock(); count > 0 && !in.isBroken(); count = in.readBlock()) {
        for (int i = 0; i < count && !in.isBroken(); i++) {
          element.skip(in);
        }
      }
    }
  }
}
