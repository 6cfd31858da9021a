package io.kafkalake.spark;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import java.time.ZoneId;
import java.util.Locale;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.DecimalType;

/** Adds JSON values that are no containers to columns, as `kafkalake.reader.json_values` converts them. */
final class JsonScalars {
  private static final long SECONDS_MIN = -62_135_596_800L; // 0001-01-01
  private static final long SECONDS_END = 253_402_300_800L; // 10000-01-01
  private static final double[] POWERS_OF_TEN = new double[23];
  private static final long EXACT_MAX = 1L << 53;

  /** Longer numbers, and those with more digits in their exponent, are none of a whole or decimal type. */
  private static final int NUMBER_CHARACTERS_MAX = 1000;

  private static final int EXPONENT_DIGITS_MAX = 4;

  static {
    for (int i = 0; i < POWERS_OF_TEN.length; i++) {
      POWERS_OF_TEN[i] = Double.parseDouble("1e" + i);
    }
  }

  private JsonScalars() {}

  /** Strings; of other values their JSON, as it is written. */
  static void appendText(WritableColumnVector column, byte[] data, int begin, int end) {
    if (data[begin] != '"') {
      column.appendByteArray(data, begin, end - begin);
      return;
    }
    for (int at = begin + 1; at < end - 1; at++) {
      if (data[at] == '\\') {
        byte[] text = JsonText.unescape(data, begin + 1, end - 1);
        if (text == null) {
          column.appendNull();
        } else {
          column.appendByteArray(text, 0, text.length);
        }
        return;
      }
    }
    column.appendByteArray(data, begin + 1, end - begin - 2);
  }

  static void appendBoolean(WritableColumnVector column, byte[] data, int begin, int end) {
    if (data[begin] == 't' || data[begin] == 'f') {
      column.appendBoolean(data[begin] == 't');
    } else {
      column.appendNull();
    }
  }

  private static boolean isNumber(byte first) {
    return first == '-' || (first >= '0' && first <= '9');
  }

  /** Whole numbers of so many bytes, also those that are written with a point or an exponent. */
  static void appendWhole(WritableColumnVector column, byte[] data, int begin, int end, long least, long most, int bytes) {
    long number = 0;
    boolean fits = isNumber(data[begin]);
    boolean isNegative = data[begin] == '-';
    boolean isPlain = fits && end - begin <= 18;
    for (int at = isNegative ? begin + 1 : begin; isPlain && at < end; at++) {
      int digit = data[at] - '0';
      isPlain = digit >= 0 && digit <= 9;
      number = 10 * number + digit;
    }
    number = isNegative ? -number : number;
    if (fits && !isPlain) {
      BigDecimal exact = decimal(data, begin, end);
      fits = exact != null && exact.precision() - exact.scale() <= 19 && exact.stripTrailingZeros().scale() <= 0;
      fits = fits && exact.compareTo(BigDecimal.valueOf(least)) >= 0 && exact.compareTo(BigDecimal.valueOf(most)) <= 0;
      number = fits ? exact.longValue() : 0;
    }
    if (!fits || number < least || number > most) {
      column.appendNull();
    } else if (bytes == 8) {
      column.appendLong(number);
    } else if (bytes == 4) {
      column.appendInt((int) number);
    } else if (bytes == 2) {
      column.appendShort((short) number);
    } else {
      column.appendByte((byte) number);
    }
  }

  /** Floating-point numbers; those that JSON has none for may be words or strings. */
  static void appendReal(WritableColumnVector column, byte[] data, int begin, int end, boolean isDouble) {
    double number;
    if (isNumber(data[begin]) && data[end - 1] <= '9') {
      number = real(data, begin, end);
    } else {
      Double special = special(characters(data, begin, end));
      if (special == null) {
        column.appendNull();
        return;
      }
      number = special;
    }
    if (isDouble) {
      column.appendDouble(number);
    } else {
      column.appendFloat((float) number);
    }
  }

  /** What is no number of JSON's; null where it is none at all. */
  private static Double special(String text) {
    boolean isSigned = text.startsWith("+") || text.startsWith("-");
    switch ((isSigned ? text.substring(1) : text).toLowerCase(Locale.ROOT)) {
      case "nan":
        return Double.NaN;
      case "inf":
      case "infinity":
        return text.startsWith("-") ? Double.NEGATIVE_INFINITY : Double.POSITIVE_INFINITY;
      default:
        return null;
    }
  }

  /** The nearest double; exact arithmetic where mantissa and power of ten are small, as they nearly always are. */
  private static double real(byte[] data, int begin, int end) {
    boolean isNegative = data[begin] == '-';
    long mantissa = 0;
    int power = 0;
    boolean isBehindPoint = false;
    for (int at = isNegative ? begin + 1 : begin; at < end; at++) {
      int digit = data[at] - '0';
      if (data[at] == '.') {
        isBehindPoint = true;
      } else if (digit < 0 || digit > 9 || mantissa > EXACT_MAX / 10 - 1) {
        return Double.parseDouble(latin(data, begin, end));
      } else {
        mantissa = 10 * mantissa + digit;
        power += isBehindPoint ? 1 : 0;
      }
    }
    if (power >= POWERS_OF_TEN.length) {
      return Double.parseDouble(latin(data, begin, end));
    }
    double number = mantissa / POWERS_OF_TEN[power];
    return isNegative ? -number : number;
  }

  /** Decimals, of numbers or strings of them, rounded to the scale as Spark rounds. */
  static void appendDecimal(WritableColumnVector column, byte[] data, int begin, int end, DecimalType type) {
    BigDecimal exact = decimal(data, begin, end);
    BigDecimal number =
        exact == null || exact.precision() - (long) exact.scale() > 38 ? null : exact.setScale(type.scale(), RoundingMode.HALF_UP);
    if (number == null || number.precision() > type.precision()) {
      column.appendNull();
    } else if (type.precision() <= 9) {
      column.appendInt(number.unscaledValue().intValue());
    } else if (type.precision() <= 18) {
      column.appendLong(number.unscaledValue().longValue());
    } else {
      byte[] unscaled = number.unscaledValue().toByteArray();
      column.appendByteArray(unscaled, 0, unscaled.length);
    }
  }

  /** The number, with all its digits; null where this is none, or none of a whole or decimal type. */
  private static BigDecimal decimal(byte[] data, int begin, int end) {
    String text = characters(data, begin, end);
    if (text.length() > NUMBER_CHARACTERS_MAX) {
      return null;
    }
    int exponent = Math.max(text.indexOf('e'), text.indexOf('E')) + 1;
    if (exponent > 0) {
      while (exponent < text.length() && "+-0".indexOf(text.charAt(exponent)) >= 0) {
        exponent++;
      }
      if (text.length() - exponent > EXPONENT_DIGITS_MAX) {
        return null;
      }
    }
    try {
      BigDecimal number = new BigDecimal(text);
      return number.signum() == 0 ? BigDecimal.ZERO : number;
    } catch (NumberFormatException error) {
      return null;
    }
  }

  /**
   * Times in ISO 8601, or seconds since 1970, as microseconds.
   *
   * @param zone of times that name none; null: local times are wanted, and the zones that are named do not count
   */
  static void appendTime(WritableColumnVector column, byte[] data, int begin, int end, ZoneId zone) {
    long micros = JsonTimes.NONE;
    if (data[begin] == '"') {
      byte[] text = JsonText.unescape(data, begin + 1, end - 1);
      micros = text == null ? JsonTimes.NONE : JsonTimes.micros(text, zone);
    } else if (isNumber(data[begin]) && end - begin <= 13) {
      long seconds = whole(data, begin, end);
      micros = seconds >= SECONDS_MIN && seconds < SECONDS_END ? 1_000_000L * seconds : JsonTimes.NONE;
    }
    if (micros == JsonTimes.NONE) {
      column.appendNull();
    } else {
      column.appendLong(micros);
    }
  }

  /** The number that is written in at most 13 digits alone; `Long.MIN_VALUE` where there is more. */
  private static long whole(byte[] data, int begin, int end) {
    boolean isNegative = data[begin] == '-';
    long number = 0;
    for (int at = isNegative ? begin + 1 : begin; at < end; at++) {
      int digit = data[at] - '0';
      if (digit < 0 || digit > 9) {
        return Long.MIN_VALUE;
      }
      number = 10 * number + digit;
    }
    return isNegative ? -number : number;
  }

  static void appendDate(WritableColumnVector column, byte[] data, int begin, int end) {
    byte[] text = data[begin] == '"' ? JsonText.unescape(data, begin + 1, end - 1) : null;
    long days = text == null ? JsonTimes.NONE : JsonTimes.days(text);
    if (days == JsonTimes.NONE) {
      column.appendNull();
    } else {
      column.appendInt((int) days);
    }
  }

  /** The characters of a value, of a string those it means; what is not ASCII is not kept, as no number has it. */
  private static String characters(byte[] data, int begin, int end) {
    if (data[begin] != '"') {
      return latin(data, begin, end);
    }
    byte[] text = JsonText.unescape(data, begin + 1, end - 1);
    return text == null ? "" : latin(text, 0, text.length);
  }

  private static String latin(byte[] data, int begin, int end) {
    return new String(data, begin, end - begin, StandardCharsets.ISO_8859_1);
  }
}
