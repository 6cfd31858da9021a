package io.kafkalake.spark;

import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.YearMonth;
import java.time.ZoneId;
import java.time.ZoneOffset;

/**
 * Times as `kafkalake.reader.json_values` reads them, of ISO 8601: `yyyy-MM-dd`, of which a year with a sign may have seven digits, then perhaps `T` or a space and `HH[:mm[:ss[.f...]]]`,
 * then perhaps `Z` or `+HH[mm]` or `+HH:mm[:ss]`. Of a fraction six digits count.
 */
final class JsonTimes {
  /** No time. */
  static final long NONE = Long.MIN_VALUE;

  private static final int YEAR_DIGITS = 4;
  private static final int YEAR_DIGITS_MAX = 7;
  private static final long SECONDS_PER_DAY = 86_400;
  private static final long MICROS = 1_000_000;

  private final byte[] text;
  private int at;

  private JsonTimes(byte[] text) {
    this.text = text;
  }

  /** Returns the days since 1970 of the date that the text is, or `NONE`. */
  static long days(byte[] text) {
    JsonTimes times = new JsonTimes(text);
    long days = times.days();
    return times.at == text.length ? days : NONE;
  }

  /**
   * Returns microseconds since 1970, or `NONE`.
   *
   * @param zone of a text that names none; null: the time is local, whatever zone it names
   */
  static long micros(byte[] text, ZoneId zone) {
    JsonTimes times = new JsonTimes(text);
    long days = times.days();
    return days == NONE ? NONE : times.micros(days, zone);
  }

  /** The date that is next. */
  private long days() {
    boolean isSigned = text.length > 0 && (text[0] == '-' || text[0] == '+');
    int first = isSigned ? 1 : 0;
    int year = 0;
    for (at = first; at < text.length && at < first + YEAR_DIGITS_MAX && text[at] >= '0' && text[at] <= '9'; at++) {
      year = 10 * year + text[at] - '0';
    }
    int digits = at - first;
    int month = isAt('-') ? next(13) : -1;
    int day = month > 0 && isAt('-') ? next(32) : -1;
    year = text.length > 0 && text[0] == '-' ? -year : year;
    if (digits < YEAR_DIGITS || !isSigned && digits > YEAR_DIGITS || day < 1 || day > YearMonth.of(year, month).lengthOfMonth()) {
      return NONE;
    }
    long days = LocalDate.of(year, month, day).toEpochDay();
    return days == (int) days ? days : NONE;
  }

  private long micros(long days, ZoneId zone) {
    int date = at;
    long seconds = SECONDS_PER_DAY * days;
    long fraction = 0;
    boolean isZoned = false;
    if (at < text.length) {
      boolean isSeparated = text[at] == 'T' || text[at] == ' ';
      at++;
      int hour = isSeparated ? next(24) : -1;
      int minute = hour >= 0 && isAt(':') ? next(60) : 0;
      int second = minute >= 0 && hour >= 0 && at > date + 5 && isAt(':') ? next(60) : 0;
      if (hour < 0 || minute < 0 || second < 0) {
        return NONE;
      }
      fraction = at > date + 8 && isAt('.') ? fraction() : 0;
      seconds += 3600L * hour + 60L * minute + second;
      isZoned = at < text.length;
      long offset = isZoned ? offset() : 0;
      if (fraction < 0 || offset == NONE) {
        return NONE;
      }
      seconds -= zone == null ? 0 : offset;
    }
    if (zone != null && !isZoned) {
      seconds -= zone.getRules().getOffset(LocalDateTime.ofEpochSecond(seconds, 0, ZoneOffset.UTC)).getTotalSeconds();
    }
    try {
      return Math.addExact(Math.multiplyExact(MICROS, seconds), fraction);
    } catch (ArithmeticException error) {
      return NONE;
    }
  }

  /** Whether this character is next, which is passed over. */
  private boolean isAt(char character) {
    if (at < text.length && text[at] == character) {
      at++;
      return true;
    }
    return false;
  }

  /** The next two digits, below a limit; -1 where they are not there. */
  private int next(int limit) {
    int number = at + 2 <= text.length ? pair(text, at) : -1;
    at += 2;
    return number < limit ? number : -1;
  }

  /** Microseconds; -1 where no digit follows. */
  private long fraction() {
    int first = at;
    long micros = 0;
    for (; at < text.length && text[at] >= '0' && text[at] <= '9'; at++) {
      micros = at - first < 6 ? 10 * micros + text[at] - '0' : micros;
    }
    for (int digits = at - first; digits < 6; digits++) {
      micros *= 10;
    }
    return at == first ? -1 : micros;
  }

  /** Seconds east of Greenwich, of all that is left; `NONE` where that is no zone. */
  private long offset() {
    if (isAt('Z')) {
      return at == text.length ? 0 : NONE;
    }
    boolean isWest = text[at] == '-';
    if (!isWest && text[at] != '+') {
      return NONE;
    }
    at++;
    int hours = next(24);
    int minutes = 0;
    int seconds = 0;
    if (isAt(':')) {
      minutes = next(60);
      seconds = isAt(':') ? next(60) : 0;
    } else if (at < text.length) {
      minutes = next(60);
    }
    if (hours < 0 || minutes < 0 || seconds < 0 || at != text.length) {
      return NONE;
    }
    long offset = 3600L * hours + 60L * minutes + seconds;
    return isWest ? -offset : offset;
  }

  private static int pair(byte[] text, int at) {
    int tens = text[at] - '0';
    int ones = text[at + 1] - '0';
    return tens < 0 || tens > 9 || ones < 0 || ones > 9 ? -1 : 10 * tens + ones;
  }
}
