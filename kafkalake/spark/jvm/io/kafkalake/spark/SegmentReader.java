package io.kafkalake.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The records of slices of segments: each message is a batch of columns over the bytes as they were read, nothing is copied or joined.
 *
 * Rows that are not wanted (outside the slice's offsets, of aborted transactions, or with keys that the query does not ask for) are left
 * out by cutting a message into runs. Within a run all timestamps are of one type, so that the column `timestampType` is a constant, as
 * `topic` and `partition` are. Keys stand before values in a message: of one without a wanted key no value is read from the file.
 */
final class SegmentReader implements PartitionReader<ColumnarBatch> {
  /** The columns of a message's body; the others are known without it. */
  private static final Map<String, Integer> OF_BODY =
      Map.of(
          "offset", SegmentMessage.OFFSET,
          "timestamp", SegmentMessage.TIMESTAMP,
          "key", SegmentMessage.KEY,
          "value", SegmentMessage.VALUE,
          "headers", SegmentMessage.HEADERS);

  /** Rows with wanted keys are of one run if at most so many others are between them: to begin a run costs as much as these. */
  private static final int OTHERS_IN_RUN = 32;

  private final ScanColumn[] wanted;
  private final SegmentSlice[] slices;
  private int sliceNumber = -1;
  private SegmentSlice slice;
  private SegmentFile file;
  private SegmentMessage message;
  private ByteBuffer memory;
  private ColumnVector[] columns;
  private MessageColumn.Offsets offsets;
  private MessageColumn.Bytes keys;
  private ConstantColumnVector timestampType;
  /** Null where no column is a field of the values. */
  private final ValueFields fields;
  /** Null: records of any key are wanted. */
  private final KeyFilter keyFilter;
  private final int lastColumn;
  private MessageColumn.Bytes values;
  private int batch;
  private int row;
  private int firstRow;
  private int endRow;
  private int spanBegin;
  private int spanEnd;
  private boolean isLogAppendTime;
  private int begin;
  private ColumnarBatch current;
  private long bytesRead;
  private long recordsLeftOut;
  private long verificationNs;

  /** @param zone of times in JSON that name none */
  SegmentReader(ScanColumn[] wanted, ZoneId zone, SegmentSlice[] slices) {
    this(wanted, zone, null, slices);
  }

  /**
   * @param zone of times in JSON that name none
   * @param keyFilter says of which keys records are wanted; null: of all
   */
  SegmentReader(ScanColumn[] wanted, ZoneId zone, KeyFilter keyFilter, SegmentSlice[] slices) {
    this.wanted = wanted;
    this.keyFilter = keyFilter;
    this.lastColumn = lastColumn(wanted);
    this.slices = slices;
    this.fields = ValueFields.of(wanted, zone);
  }

  @Override
  public boolean next() throws IOException {
    while (message == null || !nextRun()) {
      if (!nextMessage()) {
        return false;
      }
    }
    return true;
  }

  @Override
  public ColumnarBatch get() {
    return current;
  }

  /** The offset of the first row of the current batch, for which no column of offsets need be asked for. */
  long firstOffset() throws IOException {
    return offset(begin);
  }

  /** The offset of the last row of the current batch. */
  long lastOffset() throws IOException {
    return offset(begin + current.numRows() - 1);
  }

  /** Where every offset of the message is a row's, its metadata say them, and its body is not read. */
  private long offset(int row) throws IOException {
    if (message.rows() == message.nextOffset() - message.baseOffset()) {
      return message.baseOffset() + row;
    }
    file.require(SegmentMessage.OFFSET);
    offsets.moveTo(0);
    return offsets.getLong(row);
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    long ns = verificationNs + (file == null ? 0 : file.message().verificationNs());
    return new CustomTaskMetric[] {
      ScanMetric.BYTES_READ.of(bytesRead + (file == null ? 0 : file.bytesRead())),
      ScanMetric.RECORDS_LEFT_OUT.of(recordsLeftOut),
      ScanMetric.VERIFICATION_TIME.of(TimeUnit.NANOSECONDS.toMillis(ns))
    };
  }

  @Override
  public void close() throws IOException {
    if (file != null) {
      file.close();
    }
    if (fields != null) {
      fields.close();
    }
  }

  /** Go to the next message with wanted offsets, in this slice or the next. */
  private boolean nextMessage() throws IOException {
    if (sliceNumber == slices.length) {
      return false;
    }
    boolean isDone = message != null && message.nextOffset() >= slice.to();
    while (true) {
      message = file == null || isDone ? null : file.next();
      if (message != null && message.baseOffset() < slice.to()) {
        break;
      }
      if (sliceNumber + 1 >= slices.length) {
        sliceNumber = slices.length;
        return false;
      }
      sliceNumber++;
      openSlice();
      isDone = slice.from() >= slice.to();
    }
    batch = 0;
    row = 0;
    firstRow = 0;
    endRow = message.rows();
    recordsLeftOut += message.rows();
    if (message.baseOffset() < slice.from() || message.nextOffset() > slice.to()) {
      file.require(SegmentMessage.OFFSET);
      firstRow = firstRowFrom(slice.from());
      endRow = firstRowFrom(slice.to());
    }
    if (keyFilter != null) {
      leaveOutBefore();
    }
    spanEnd = 0;
    return true;
  }

  /** Go to the first row with a wanted key, and read what is wanted of the message if there is one. */
  private void leaveOutBefore() throws IOException {
    keys.moveTo(0);
    firstRow = keys.firstAmong(keyFilter, firstRow, endRow);
    if (firstRow < endRow) {
      file.require(lastColumn);
      keys.moveTo(0);
    }
  }

  private void openSlice() throws IOException {
    slice = slices[sliceNumber];
    if (file != null) {
      memory = file.memory();
      bytesRead += file.bytesRead();
      verificationNs += file.message().verificationNs();
      file.close();
    }
    file = new SegmentFile(slice, memory, keyFilter == null ? lastColumn : SegmentMessage.KEY);
    columns = new ColumnVector[wanted.length];
    offsets = new MessageColumn.Offsets(DataTypes.LongType, file.message());
    keys = keys(DataTypes.BinaryType, file.message());
    int field = 0;
    for (int i = 0; i < columns.length; i++) {
      columns[i] = wanted[i].isField() ? fields.column(field++) : column(wanted[i], file.message());
    }
    values = fields == null ? null : values(DataTypes.BinaryType, file.message());
  }

  /** The last of the wanted columns in the body of a message; `SegmentMessage.NO_COLUMN` if none is there. */
  private static int lastColumn(ScanColumn[] wanted) {
    return Arrays.stream(wanted)
        .mapToInt(column -> column.isField() ? SegmentMessage.VALUE : OF_BODY.getOrDefault(column.origin(), SegmentMessage.NO_COLUMN))
        .max()
        .orElse(SegmentMessage.NO_COLUMN);
  }

  private ColumnVector column(ScanColumn column, SegmentMessage message) {
    DataType type = column.type();
    switch (column.origin()) {
      case "topic":
        ConstantColumnVector topic = new ConstantColumnVector(1, type);
        topic.setUtf8String(UTF8String.fromString(slice.topic()));
        return topic;
      case "_topic_id":
        ConstantColumnVector topicId = new ConstantColumnVector(1, type);
        topicId.setUtf8String(UTF8String.fromString(slice.topicId()));
        return topicId;
      case "partition":
        ConstantColumnVector partition = new ConstantColumnVector(1, type);
        partition.setInt(slice.partition());
        return partition;
      case "timestampType":
        if (timestampType == null) { // two columns of a query may be this one, by its name and as a metadata column
          timestampType = new ConstantColumnVector(1, type);
        }
        return timestampType;
      case "offset":
        return new MessageColumn.Offsets(type, message);
      case "timestamp":
        return new MessageColumn.Timestamps(type, message);
      case "key":
        return keys(type, message);
      case "value":
        return values(type, message);
      case "headers":
        return new MessageColumn.Headers(type, ((ArrayType) type).elementType(), message);
      default:
        throw new IllegalArgumentException("a segment has no column " + column.origin());
    }
  }

  private static MessageColumn.Bytes keys(DataType type, SegmentMessage message) {
    return new MessageColumn.Bytes(type, message, SegmentMessage.KEY, SegmentMessage.KEY, 4);
  }

  private static MessageColumn.Bytes values(DataType type, SegmentMessage message) {
    return new MessageColumn.Bytes(type, message, SegmentMessage.VALUE, SegmentMessage.VALUE, 7);
  }

  /** The number of rows before this offset. */
  private int firstRowFrom(long offset) {
    offsets.moveTo(0);
    int low = 0;
    int high = message.rows();
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (offsets.getLong(middle) < offset) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** Make the next run of wanted rows the current batch. */
  private boolean nextRun() {
    while (true) {
      int first = keyFilter == null ? spanBegin : keys.firstAmong(keyFilter, spanBegin, spanEnd);
      if (first < spanEnd) {
        spanBegin = keyFilter == null ? spanEnd : endOfRun(first);
        makeCurrent(first, spanBegin);
        return true;
      }
      if (!nextSpan()) {
        return false;
      }
    }
  }

  /** Go to the next rows that are not aborted and have timestamps of one type; false: the message has no more. */
  private boolean nextSpan() {
    while (batch < message.batches()) {
      isLogAppendTime = message.hasLogAppendTime(batch);
      boolean isAborted = message.isAborted(batch, slice);
      int from = row;
      do {
        row += message.records(batch++);
      } while (batch < message.batches()
          && message.hasLogAppendTime(batch) == isLogAppendTime
          && message.isAborted(batch, slice) == isAborted);
      spanBegin = Math.max(from, firstRow);
      spanEnd = Math.min(row, endRow);
      if (!isAborted && spanBegin < spanEnd) {
        return true;
      }
    }
    return false;
  }

  /** One past the last row with a wanted key of the run that begins with such a row. */
  private int endOfRun(int first) {
    int last = first;
    while (true) {
      int end = Math.min(spanEnd, last + OTHERS_IN_RUN + 2);
      int next = keys.firstAmong(keyFilter, last + 1, end);
      if (next >= end) {
        return last + 1;
      }
      last = next;
    }
  }

  private void makeCurrent(int begin, int end) {
    this.begin = begin;
    recordsLeftOut -= end - begin;
    for (ColumnVector column : columns) {
      if (column instanceof MessageColumn) {
        ((MessageColumn) column).moveTo(begin);
      }
    }
    if (timestampType != null) {
      timestampType.setInt(isLogAppendTime ? 1 : 0);
    }
    if (fields != null) {
      values.moveTo(begin);
      values.readFields(fields, end - begin);
    }
    current = new ColumnarBatch(columns, end - begin);
  }
}
