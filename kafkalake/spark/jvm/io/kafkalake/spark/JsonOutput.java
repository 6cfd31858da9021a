package io.kafkalake.spark;

import com.fasterxml.jackson.core.io.schubfach.DoubleToDecimal;
import com.fasterxml.jackson.core.io.schubfach.FloatToDecimal;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/** Text that is written: JSON in UTF-8, in the words of `kafkalake/reader/json_texts.py`. */
final class JsonOutput {
  private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
  private static final int MICRO_NANOSECONDS = 1000;
  private static final int FRACTION_DIGITS = 6;
  private static final int ESCAPE_BYTES_MAX = 6;

  private byte[] bytes = new byte[1024];
  private int length;

  byte[] bytes() {
    return bytes;
  }

  int length() {
    return length;
  }

  /** Forgets what was written. */
  void clear() {
    length = 0;
  }

  String text() {
    return new String(bytes, 0, length, StandardCharsets.UTF_8);
  }

  void put(char ascii) {
    reserve(1);
    bytes[length++] = (byte) ascii;
  }

  void put(String ascii) {
    reserve(ascii.length());
    for (int i = 0; i < ascii.length(); i++) {
      bytes[length++] = (byte) ascii.charAt(i);
    }
  }

  void put(byte[] text) {
    reserve(text.length);
    System.arraycopy(text, 0, bytes, length, text.length);
    length += text.length;
  }

  /** Writes a string in quotes, with the escapes that JSON cannot do without. Throws `StagingException` if it is no UTF-8. */
  void putQuoted(UTF8String text) {
    if (!text.isValid()) {
      throw new StagingException("a string is no UTF-8, which JSON is: write such bytes as a value, in BINARY");
    }
    byte[] given = text.getBytes();
    reserve(given.length + 2);
    bytes[length++] = '"';
    for (int i = 0; i < given.length; i++) {
      byte found = given[i];
      if (found == '"' || found == '\\' || (found >= 0 && found < ' ')) {
        reserve(given.length - i + ESCAPE_BYTES_MAX);
        putEscaped(found);
      } else {
        bytes[length++] = found;
      }
    }
    bytes[length++] = '"';
  }

  private void putEscaped(byte found) {
    int known = "\"\\\n\r\t\f\b".indexOf(found);
    bytes[length++] = '\\';
    if (known >= 0) {
      bytes[length++] = (byte) "\"\\nrtfb".charAt(known);
      return;
    }
    put("u00");
    bytes[length++] = HEX[found >> 4];
    bytes[length++] = HEX[found & 15];
  }

  /** Writes a number as Python's `repr` does: the fewest digits that are read as this number again. */
  void putDouble(double number) {
    if (!putSpecial(number)) {
      putDigits(ofDouble(number), 16, -4, true);
    }
  }

  /** Writes a number as Arrow does: with the digits of the float, not those of the nearest double. */
  void putFloat(float number) {
    if (!putSpecial(number)) {
      String text = FloatToDecimal.toString(number);
      String shorter = shortened(text);
      putDigits(!shorter.equals(text) && Float.parseFloat(shorter) == number ? shorter : text, 10, -6, false);
    }
  }

  private static String ofDouble(double number) {
    String text = DoubleToDecimal.toString(number);
    String shorter = shortened(text);
    return !shorter.equals(text) && Double.parseDouble(shorter) == number ? shorter : text;
  }

  /** Java gives the smallest numbers a second digit where one is enough: 4.9E-324 is 5E-324 as well. */
  private static String shortened(String text) {
    int begin = text.startsWith("-") ? 1 : 0;
    int exponent = text.indexOf('E');
    boolean hasTwo = exponent == begin + 3 && text.charAt(begin + 2) != '0';
    if (!hasTwo) {
      return text;
    }
    int rounded = text.charAt(begin) - '0' + (text.charAt(begin + 2) >= '5' ? 1 : 0);
    return rounded > 9 ? text : text.substring(0, begin) + rounded + ".0" + text.substring(exponent);
  }

  private boolean putSpecial(double number) {
    if (Double.isNaN(number)) {
      put("\"NaN\"");
    } else if (Double.isInfinite(number)) {
      put(number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    }
    return Double.isNaN(number) || Double.isInfinite(number);
  }

  /**
   * Writes a number in another notation.
   *
   * @param text of Java: 12.5 or 1.25E10
   * @param most decimal exponents from here on are written as such
   * @param least decimal exponents below are written as such
   * @param isPython with ".0" where there is no fraction, and two digits of an exponent at least
   */
  private void putDigits(String text, int most, int least, boolean isPython) {
    int mark = text.indexOf('E');
    String mantissa = mark < 0 ? text : text.substring(0, mark);
    if (mantissa.charAt(0) == '-') {
      put('-');
      mantissa = mantissa.substring(1);
    }
    int point = mantissa.indexOf('.');
    String digits = mantissa.substring(0, point) + mantissa.substring(point + 1);
    int zeros = 0;
    while (zeros < digits.length() - 1 && digits.charAt(zeros) == '0') {
      zeros++;
    }
    int end = digits.length();
    while (end > zeros + 1 && digits.charAt(end - 1) == '0') {
      end--;
    }
    int exponent = (mark < 0 ? 0 : Integer.parseInt(text.substring(mark + 1))) + point - 1 - zeros;
    digits = digits.substring(zeros, end);
    if (digits.equals("0")) {
      put(isPython ? "0.0" : "0");
    } else if (exponent < least || exponent >= most) {
      put(digits.charAt(0));
      if (digits.length() > 1) {
        put('.');
        put(digits.substring(1));
      }
      put(exponent < 0 ? "e-" : "e+");
      put((isPython && Math.abs(exponent) < 10 ? "0" : "") + Math.abs(exponent));
    } else if (exponent < 0) {
      put("0." + "0".repeat(-exponent - 1) + digits);
    } else if (digits.length() <= exponent + 1) {
      put(digits + "0".repeat(exponent + 1 - digits.length()) + (isPython ? ".0" : ""));
    } else {
      put(digits.substring(0, exponent + 1) + "." + digits.substring(exponent + 1));
    }
  }

  /** Writes a date as Spark's `to_json` does: years beyond 9999 have a sign, as ISO 8601 wants it. */
  void putDate(LocalDate date) {
    if (date.getYear() < 0 || date.getYear() > 9999) {
      put(date.getYear() < 0 ? '-' : '+');
    }
    putPadded(Math.abs(date.getYear()), 4);
    put('-');
    putPadded(date.getMonthValue(), 2);
    put('-');
    putPadded(date.getDayOfMonth(), 2);
  }

  /** Writes date and time with all six digits of the second's fraction. */
  void putTime(LocalDateTime time) {
    putDate(time.toLocalDate());
    put('T');
    putPadded(time.getHour(), 2);
    put(':');
    putPadded(time.getMinute(), 2);
    put(':');
    putPadded(time.getSecond(), 2);
    put('.');
    putPadded(time.getNano() / MICRO_NANOSECONDS, FRACTION_DIGITS);
  }

  void putOffset(int seconds) {
    put(seconds < 0 ? '-' : '+');
    int minutes = Math.abs(seconds) / 60;
    putPadded(minutes / 60, 2);
    putPadded(minutes % 60, 2);
  }

  private void putPadded(int number, int digits) {
    String text = Integer.toString(number);
    for (int i = text.length(); i < digits; i++) {
      put('0');
    }
    put(text);
  }

  private void reserve(int more) {
    int needed = Math.addExact(length, more);
    if (needed > bytes.length) {
      bytes = Arrays.copyOf(bytes, Math.max(needed, bytes.length < 1 << 29 ? 2 * bytes.length : needed));
    }
  }
}
