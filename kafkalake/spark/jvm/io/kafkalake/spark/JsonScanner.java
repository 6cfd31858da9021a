package io.kafkalake.spark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * Checks that bytes are one JSON object, and finds the values of some of its members, in one pass that builds nothing.
 *
 * What is JSON is what Python's `json` reads from UTF-8: RFC 8259, and the numbers NaN, Infinity and -Infinity; a byte order mark may
 * stand before it. All of the object is looked at: one that is broken behind the wanted members is none, and of members of one name the
 * last counts. Objects and arrays are nested at most {@value #DEPTH_MAX} deep.
 *
 * Records of a topic mostly have the same members in the same order. So the scanner remembers which bytes stood before the value of the
 * n-th member of the last object (comma, name, colon and spaces), and compares those eight at a time before it takes a name apart.
 */
final class JsonScanner {
  /** As in `kafkalake.reader.json_values`. */
  static final int DEPTH_MAX = 500;

  /** Where a value is not. */
  static final int ABSENT = -1;

  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final long ONES = 0x0101010101010101L;
  private static final long HIGH = 0x8080808080808080L;
  private static final long HIGH_HALVES = 0xF0F0F0F0F0F0F0F0L;
  private static final long DIGITS = 0x3030303030303030L;
  private static final long SIXES = 0x0606060606060606L;
  private static final byte[] TRUE = {'t', 'r', 'u', 'e'};
  private static final byte[] FALSE = {'f', 'a', 'l', 's', 'e'};
  private static final byte[] NULL = {'n', 'u', 'l', 'l'};
  private static final byte[] NAN = {'N', 'a', 'N'};
  private static final byte[] INFINITY = {'I', 'n', 'f', 'i', 'n', 'i', 't', 'y'};

  private static final int MEMBERS_REMEMBERED = 64;
  private static final int WORDS_REMEMBERED = 5;

  private final byte[][] names;

  /** By name, where its value begins and ends in `data`; `ABSENT` where there is none. */
  final int[] begins;

  final int[] ends;
  private final boolean[] isObject = new boolean[DEPTH_MAX + 1];
  private byte[] data;
  private int end;

  /** Of the n-th member: how many bytes stand before its value (0: not remembered), those bytes, and which name it is. */
  private final int[] lengths = new int[MEMBERS_REMEMBERED];

  private final long[] words = new long[MEMBERS_REMEMBERED * WORDS_REMEMBERED];
  private final int[] numbers = new int[MEMBERS_REMEMBERED];

  /** @param names of members, in UTF-8 */
  JsonScanner(byte[][] names) {
    this.names = names;
    begins = new int[names.length];
    ends = new int[names.length];
  }

  /** Returns whether `data` from `begin` to `end` is a JSON object, and finds its members. */
  boolean scan(byte[] data, int begin, int end) {
    this.data = data;
    this.end = end;
    Arrays.fill(begins, ABSENT);
    int at = skipSpace(skipByteOrderMark(begin));
    if (at >= end || data[at] != '{') {
      return false;
    }
    at++;
    for (int member = 0; ; member++) {
      int value;
      int number;
      if (member < MEMBERS_REMEMBERED && isRemembered(member, at)) {
        value = skipSpace(at + lengths[member]);
        number = numbers[member];
      } else {
        int name = skipSpace(at);
        if (name < end && data[name] == '}') {
          return skipSpace(name + 1) == end;
        }
        if (member > 0) {
          name = name < end && data[name] == ',' ? skipSpace(name + 1) : end;
        }
        int stop = skipString(name);
        value = skipColon(stop);
        if (value < 0) {
          return false;
        }
        number = find(name, stop);
        remember(member, at, value, number);
      }
      at = skipValue(value);
      if (at < 0) {
        return false;
      }
      if (number >= 0) {
        begins[number] = value;
        ends[number] = at;
      }
    }
  }

  /** Whether the bytes from here on are those that this member began with before. */
  private boolean isRemembered(int member, int at) {
    int length = lengths[member];
    if (length == 0 || at + Math.max(length, 8) > end) {
      return false;
    }
    int word = member * WORDS_REMEMBERED;
    if (length < 8) {
      return ((long) LONGS.get(data, at) & (1L << 8 * length) - 1) == words[word];
    }
    int last = at + length - 8;
    for (int next = at; next < last; next += 8) {
      if ((long) LONGS.get(data, next) != words[word++]) {
        return false;
      }
    }
    return (long) LONGS.get(data, last) == words[word];
  }

  private void remember(int member, int begin, int value, int number) {
    int length = value - begin;
    if (member >= MEMBERS_REMEMBERED || length > 8 * WORDS_REMEMBERED || begin + 8 > end) {
      return;
    }
    int word = member * WORDS_REMEMBERED;
    int last = value - 8;
    for (int next = begin; next < last; next += 8) {
      words[word++] = (long) LONGS.get(data, next);
    }
    words[word] = length < 8 ? (long) LONGS.get(data, begin) & (1L << 8 * length) - 1 : (long) LONGS.get(data, last);
    lengths[member] = length;
    numbers[member] = number;
  }

  /** The wanted name that stands, quoted, from `begin` to `end`; -1 if it is none. */
  private int find(int begin, int end) {
    byte[] name = null;
    for (int at = begin; at < end; at++) {
      if (data[at] == '\\') {
        name = JsonText.unescape(data, begin + 1, end - 1);
        if (name == null) {
          return -1;
        }
        break;
      }
    }
    for (int number = 0; number < names.length; number++) {
      byte[] wanted = names[number];
      if (name == null
          ? Arrays.equals(wanted, 0, wanted.length, data, begin + 1, end - 1)
          : Arrays.equals(wanted, name)) {
        return number;
      }
    }
    return -1;
  }

  private int skipByteOrderMark(int at) {
    boolean isMark = at + 3 <= end && data[at] == (byte) 0xEF && data[at + 1] == (byte) 0xBB && data[at + 2] == (byte) 0xBF;
    return isMark ? at + 3 : at;
  }

  private int skipSpace(int at) {
    while (at < end && data[at] <= ' ' && (data[at] == ' ' || data[at] == '\n' || data[at] == '\r' || data[at] == '\t')) {
      at++;
    }
    return at;
  }

  /** Returns where a value may begin behind the colon that follows a name; -1 if there is none. */
  private int skipColon(int at) {
    if (at < 0) {
      return -1;
    }
    at = skipSpace(at);
    return at < end && data[at] == ':' ? skipSpace(at + 1) : -1;
  }

  /** Returns where the value that begins here ends; -1 if it is none. */
  private int skipValue(int at) {
    if (at >= end) {
      return -1;
    }
    byte first = data[at];
    if (first == '"') {
      return skipString(at);
    }
    if (first <= '9') {
      return skipNumber(at);
    }
    return first == '{' || first == '[' ? skipNested(at) : skipPlain(at);
  }

  private int skipPlain(int at) {
    switch (data[at]) {
      case 't':
        return skipWord(at, TRUE);
      case 'f':
        return skipWord(at, FALSE);
      case 'n':
        return skipWord(at, NULL);
      case 'N':
        return skipWord(at, NAN);
      case 'I':
        return skipWord(at, INFINITY);
      default:
        return skipNumber(at);
    }
  }

  private int skipWord(int at, byte[] word) {
    int stop = at + word.length;
    return stop <= end && Arrays.equals(data, at, stop, word, 0, word.length) ? stop : -1;
  }

  private int skipNumber(int at) {
    if (data[at] == '-') {
      at++;
      if (at < end && data[at] == 'I') {
        return skipWord(at, INFINITY);
      }
    }
    int first = at;
    at = skipDigits(at);
    if (at == first || (data[first] == '0' && at > first + 1)) {
      return -1;
    }
    if (at < end && data[at] == '.') {
      int fraction = at + 1;
      at = skipDigits(fraction);
      if (at == fraction) {
        return -1;
      }
    }
    if (at < end && (data[at] | 0x20) == 'e') {
      int exponent = at + 1;
      if (exponent < end && (data[exponent] == '+' || data[exponent] == '-')) {
        exponent++;
      }
      at = skipDigits(exponent);
      if (at == exponent) {
        return -1;
      }
    }
    return at;
  }

  private int skipDigits(int at) {
    while (at + 8 <= end) {
      long word = (long) LONGS.get(data, at);
      // Not zero in the lowest byte that is no digit: digits, and the same plus 6, are 0x30 to 0x3F.
      long other = ((word & HIGH_HALVES) ^ DIGITS) | ((word + SIXES & HIGH_HALVES) ^ DIGITS);
      if (other != 0) {
        return at + (Long.numberOfTrailingZeros(other) >>> 3);
      }
      at += 8;
    }
    while (at < end && data[at] >= '0' && data[at] <= '9') {
      at++;
    }
    return at;
  }

  /** Returns where the string whose first quote is here ends, behind its last; -1 if there is no string. */
  private int skipString(int at) {
    if (at >= end || data[at] != '"') {
      return -1;
    }
    at++;
    while (true) {
      while (at + 8 <= end) {
        long word = (long) LONGS.get(data, at);
        long quotes = word ^ (ONES * '"');
        long escapes = word ^ (ONES * '\\');
        // In the lowest byte that is set: a control character, a quote, a backslash, or no ASCII.
        long special =
            (((word - ONES * ' ') & ~word) | ((quotes - ONES) & ~quotes) | ((escapes - ONES) & ~escapes) | word) & HIGH;
        if (special != 0) {
          at += Long.numberOfTrailingZeros(special) >>> 3;
          break;
        }
        at += 8;
      }
      if (at >= end) {
        return -1;
      }
      byte found = data[at];
      if (found == '"') {
        return at + 1;
      }
      if (found == '\\') {
        at = skipEscape(at);
      } else if (found < 0) {
        at = skipCharacter(at);
      } else if (found < ' ') {
        return -1;
      } else {
        at++;
      }
      if (at < 0) {
        return -1;
      }
    }
  }

  private int skipEscape(int at) {
    if (at + 1 >= end) {
      return -1;
    }
    switch (data[at + 1]) {
      case '"':
      case '\\':
      case '/':
      case 'b':
      case 'f':
      case 'n':
      case 'r':
      case 't':
        return at + 2;
      case 'u':
        for (int digit = at + 2; digit < at + 6; digit++) {
          if (digit >= end || Character.digit(data[digit], 16) < 0) {
            return -1;
          }
        }
        return at + 6;
      default:
        return -1;
    }
  }

  /** Returns where the UTF-8 sequence of several bytes that begins here ends; -1 if it is none. */
  private int skipCharacter(int at) {
    int first = data[at] & 0xFF;
    int length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || at + length > end) {
      return -1;
    }
    for (int i = 1; i < length; i++) {
      if ((data[at + i] & 0xC0) != 0x80) {
        return -1;
      }
    }
    int second = data[at + 1] & 0xFF;
    boolean isWrong =
        (first == 0xE0 && second < 0xA0)
            || (first == 0xED && second > 0x9F) // half a surrogate pair
            || (first == 0xF0 && second < 0x90)
            || (first == 0xF4 && second > 0x8F);
    return isWrong ? -1 : at + length;
  }

  /** Returns where the object or array that begins here, in the outermost object, ends; -1 if it is none, or too deep. */
  private int skipNested(int at) {
    int depth = 1;
    while (true) {
      // At the first byte of a value.
      if (data[at] == '{' || data[at] == '[') {
        if (++depth > DEPTH_MAX) {
          return -1;
        }
        isObject[depth] = data[at] == '{';
        at = skipSpace(at + 1);
        if (at < end && data[at] == closing(depth)) {
          at = skipEnds(at, depth);
        } else {
          at = skipName(at, depth);
          if (at < 0) {
            return -1;
          }
          continue;
        }
      } else {
        at = data[at] == '"' ? skipString(at) : skipPlain(at);
        at = at < 0 ? -1 : skipEnds(at, depth);
      }
      if (at < 0 || endedDepth == 1) {
        return at;
      }
      depth = endedDepth;
      at = skipName(at, depth);
      if (at < 0) {
        return -1;
      }
    }
  }

  /** How deep the bytes are where `skipEnds` ended; 1: behind the outermost container that it began in. */
  private int endedDepth;

  private byte closing(int depth) {
    return (byte) (isObject[depth] ? '}' : ']');
  }

  /** Returns where, behind a value, the next one's part begins, over a comma; or where all containers have ended; -1: neither. */
  private int skipEnds(int at, int depth) {
    while (true) {
      at = skipSpace(at);
      if (at >= end) {
        return -1;
      }
      if (data[at] == ',') {
        endedDepth = depth;
        return skipSpace(at + 1);
      }
      if (data[at] != closing(depth)) {
        return -1;
      }
      at++;
      if (--depth == 1) {
        endedDepth = 1;
        return at;
      }
    }
  }

  /** Returns where a value begins, behind the name that stands before it in an object; -1 if nothing follows, or no name. */
  private int skipName(int at, int depth) {
    if (isObject[depth]) {
      at = skipColon(skipString(at));
    }
    return at < 0 || at >= end ? -1 : at;
  }
}
