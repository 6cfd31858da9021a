package io.kafkalake.spark;

/** The parts of an array, or the names and values of an object in turn, which `JsonScanner` has found to be one. */
final class JsonParts {
  private final byte[] data;
  private final int stop;
  private final int start;
  private int at;

  /** Where the part that {@link #next} has come to begins and ends. */
  int begin;

  int end;

  JsonParts(byte[] data, int begin, int end) {
    this.data = data;
    this.start = begin + 1;
    this.stop = end - 1;
    this.at = start;
  }

  /** The number of parts; stands before the first again. */
  int count() {
    int count = 0;
    while (next()) {
      count++;
    }
    at = start;
    return count;
  }

  boolean next() {
    while (at < stop && (data[at] <= ' ' || data[at] == ',' || data[at] == ':')) {
      at++;
    }
    if (at >= stop) {
      return false;
    }
    begin = at;
    int depth = 0;
    do {
      byte found = data[at];
      if (found == '"') {
        skipString();
      } else {
        depth += found == '{' || found == '[' ? 1 : found == '}' || found == ']' ? -1 : 0;
        at++;
      }
    } while (at < stop && (depth > 0 || isInside(data[at])));
    end = at;
    return true;
  }

  /** Whether a part that is no container goes on with this byte. */
  private boolean isInside(byte found) {
    return found > ' ' && found != ',' && found != ':' && data[at - 1] != '"' && data[at - 1] != ']' && data[at - 1] != '}';
  }

  private void skipString() {
    at++;
    while (data[at] != '"') {
      at += data[at] == '\\' ? 2 : 1;
    }
    at++;
  }
}
