package io.kafkalake.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Objects;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of a message, as Spark asks for it: from a row on, and verified only when a value of it is asked for. */
abstract class MessageColumn extends ColumnVector {
  protected final SegmentMessage message;
  private final int column;
  protected int first;
  private boolean isReady;

  private MessageColumn(DataType type, SegmentMessage message, int column) {
    super(type);
    this.message = message;
    this.column = column;
  }

  /** Stand at row `first` of the message, which may be another one than before. */
  void moveTo(int first) {
    this.first = first;
    isReady = false;
  }

  /** Find the buffers of a verified column. */
  protected abstract void find();

  protected final void ready() {
    if (!isReady) {
      message.verify(column);
      find();
      isReady = true;
    }
  }

  @Override
  public void close() {}

  @Override
  public boolean hasNull() {
    return numNulls() > 0;
  }

  @Override
  public int numNulls() {
    return 0;
  }

  @Override
  public boolean isNullAt(int row) {
    return false;
  }

  @Override
  public boolean getBoolean(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public byte getByte(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public short getShort(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public int getInt(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public long getLong(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public float getFloat(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public double getDouble(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw new UnsupportedOperationException();
  }

  @Override
  public UTF8String getUTF8String(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public byte[] getBinary(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    throw new UnsupportedOperationException();
  }

  /** Offsets, int64. */
  static class Offsets extends MessageColumn {
    private final int buffer;
    private ByteBuffer data;
    private int start;

    Offsets(DataType type, SegmentMessage message) {
      this(type, message, SegmentMessage.OFFSET, 1);
    }

    private Offsets(DataType type, SegmentMessage message, int column, int buffer) {
      super(type, message, column);
      this.buffer = buffer;
    }

    @Override
    protected void find() {
      data = message.bufferData(buffer);
      start = message.bufferStart(buffer);
    }

    @Override
    public long getLong(int row) {
      ready();
      return data.getLong(start + 8 * (first + row));
    }
  }

  /** Timestamps: microseconds, of milliseconds. Producers may send any int64; what does not fit is shown as the largest that does. */
  static final class Timestamps extends Offsets {
    private static final long MILLISECONDS_MAX = Long.MAX_VALUE / 1000;

    Timestamps(DataType type, SegmentMessage message) {
      super(type, message, SegmentMessage.TIMESTAMP, 3);
    }

    @Override
    public long getLong(int row) {
      return 1000 * Math.max(-MILLISECONDS_MAX, Math.min(MILLISECONDS_MAX, super.getLong(row)));
    }
  }

  /** Keys or values, or those of headers: bytes, or a text of Spark's where the user has said that they are one. */
  static final class Bytes extends MessageColumn {
    private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private final int buffer;
    private final int node;
    private ByteBuffer validity;
    private int validityStart;
    private byte[] ends;
    private int firstEnd;
    private byte[] bytes;
    private int firstByte;
    private int endByte;
    private int nulls;

    /**
     * @param node of the Arrow message, which says how many are null
     * @param buffer the first of the three: validity, offsets, bytes
     */
    Bytes(DataType type, SegmentMessage message, int column, int node, int buffer) {
      super(type, message, column);
      this.node = node;
      this.buffer = buffer;
    }

    @Override
    void moveTo(int first) {
      super.moveTo(first);
      nulls = (int) message.nulls(node);
    }

    @Override
    protected void find() {
      validity = message.bufferData(buffer);
      validityStart = message.bufferStart(buffer);
      ByteBuffer offsets = message.bufferData(buffer + 1);
      ends = offsets.array();
      firstEnd = offsets.arrayOffset() + message.bufferStart(buffer + 1);
      ByteBuffer data = message.bufferData(buffer + 2);
      bytes = data.array();
      firstByte = data.arrayOffset() + message.bufferStart(buffer + 2);
      endByte = data.arrayOffset() + data.limit();
    }

    /** Where the value before row `row` of the message ends in `bytes`, and that of the row begins. */
    private int begin(int row) {
      return firstByte + (int) INT.get(ends, firstEnd + 4 * row);
    }

    @Override
    public int numNulls() {
      return nulls;
    }

    @Override
    public boolean isNullAt(int row) {
      if (nulls == 0) {
        return false;
      }
      ready();
      int at = first + row;
      return (validity.get(validityStart + (at >> 3)) >> (at & 7) & 1) == 0;
    }

    @Override
    public byte[] getBinary(int row) {
      if (isNullAt(row)) {
        return null;
      }
      ready();
      int begin = begin(first + row);
      int end = begin(first + row + 1);
      Objects.checkFromToIndex(begin, end, endByte);
      return Arrays.copyOfRange(bytes, begin, end); // for which the JVM clears no memory
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return UTF8String.fromBytes(getBinary(row));
    }

    /** The first of the rows [row, end) with one of these keys; `end` if none has one. */
    int firstAmong(KeyFilter keys, int row, int end) {
      if (row >= end) {
        return end;
      }
      ready();
      for (int at = row; at < end; at++) {
        if (isNullAt(at) ? keys.hasNull() : keys.has(bytes, begin(first + at), begin(first + at + 1))) {
          return at;
        }
      }
      return end;
    }

    /** Add the fields of the first `rows` values, which have them. */
    void readFields(ValueFields fields, int rows) {
      ready();
      int begin = begin(first);
      fields.reset(rows);
      for (int row = 0; row < rows; row++) {
        int end = begin(first + row + 1);
        if (isNullAt(row)) {
          fields.appendNull();
        } else {
          fields.append(bytes, begin, end);
        }
        begin = end;
      }
    }
  }

  /** Lists of headers; null, not an empty list, where a record has none, as with Spark's Kafka source. */
  static final class Headers extends MessageColumn {
    private final Header header;
    private ByteBuffer offsets;
    private int start;

    Headers(DataType type, DataType element, SegmentMessage message) {
      super(type, message, SegmentMessage.HEADERS);
      header = new Header(element, message);
    }

    @Override
    void moveTo(int first) {
      super.moveTo(first);
      header.moveTo(0);
    }

    @Override
    protected void find() {
      offsets = message.bufferData(11);
      start = message.bufferStart(11);
    }

    @Override
    public boolean hasNull() {
      return true;
    }

    @Override
    public boolean isNullAt(int row) {
      return begin(row + 1) == begin(row);
    }

    @Override
    public ColumnarArray getArray(int row) {
      int begin = begin(row);
      return new ColumnarArray(header, begin, begin(row + 1) - begin);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      return header;
    }

    private int begin(int row) {
      ready();
      return offsets.getInt(start + 4 * (first + row));
    }
  }

  /** All headers of a message, one after another: a struct of key and value. */
  private static final class Header extends MessageColumn {
    private final Bytes[] fields;

    Header(DataType type, SegmentMessage message) {
      super(type, message, SegmentMessage.HEADERS);
      org.apache.spark.sql.types.StructType struct = (org.apache.spark.sql.types.StructType) type;
      fields =
          new Bytes[] {
            new Bytes(struct.apply(0).dataType(), message, SegmentMessage.HEADERS, 6, 13),
            new Bytes(struct.apply(1).dataType(), message, SegmentMessage.HEADERS, 7, 16),
          };
    }

    @Override
    void moveTo(int first) {
      super.moveTo(first);
      for (Bytes field : fields) {
        field.moveTo(first);
      }
    }

    @Override
    protected void find() {}

    @Override
    public ColumnVector getChild(int ordinal) {
      return fields[ordinal];
    }
  }
}
