package io.kafkalake.spark;

import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.YearMonth;
import java.time.ZoneId;
import java.time.ZoneOffset;

/**
 * Times as `kafkalake.reader.json_values` reads them, of ISO 8601: `yyyy-MM-dd`, then perhaps `T` or a space and `HH[:mm[:ss[.f...]]]`,
 * then perhaps `Z` or `+HH[mm]` or `+HH:mm[:ss]`. Of a fraction six digits count.
 */
final class JsonTimes {
  /** No time. */
  static final long NONE = Long.MIN_VALUE;

  static final int DATE_CHARACTERS = 10;
  private static final long SECONDS_PER_DAY = 86_400;

  private final byte[] text;
  private int at;

  private JsonTimes(byte[] text) {
    this.text = text;
  }

  /** Returns the days since 1970 of the date that the text begins with, or `NONE`. */
  static long days(byte[] text) {
    if (text.length < DATE_CHARACTERS || text[4] != '-' || text[7] != '-') {
      return NONE;
    }
    int year = 100 * pair(text, 0) + pair(text, 2);
    int month = pair(text, 5);
    int day = pair(text, 8);
    boolean isYear = pair(text, 0) >= 0 && pair(text, 2) >= 0 && year > 0;
    if (!isYear || month < 1 || month > 12 || day < 1 || day > YearMonth.of(year, month).lengthOfMonth()) {
      return NONE;
    }
    return LocalDate.of(year, month, day).toEpochDay();
  }

  /**
   * Returns microseconds since 1970, or `NONE`.
   *
   * @param zone of a text that names none; null: the time is local, whatever zone it names
   */
  static long micros(byte[] text, ZoneId zone) {
    long days = days(text);
    return days == NONE ? NONE : new JsonTimes(text).micros(days, zone);
  }

  private long micros(long days, ZoneId zone) {
    long seconds = SECONDS_PER_DAY * days;
    long fraction = 0;
    boolean isZoned = false;
    at = DATE_CHARACTERS;
    if (at < text.length) {
      boolean isSeparated = text[at] == 'T' || text[at] == ' ';
      at++;
      int hour = isSeparated ? next(24) : -1;
      int minute = hour >= 0 && isAt(':') ? next(60) : 0;
      int second = minute >= 0 && hour >= 0 && at > 15 && isAt(':') ? next(60) : 0;
      if (hour < 0 || minute < 0 || second < 0) {
        return NONE;
      }
      fraction = at > 18 && isAt('.') ? fraction() : 0;
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
    return 1_000_000L * seconds + fraction;
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
