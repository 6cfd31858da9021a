package io.kafkalake.spark;

import java.util.Arrays;

/** The characters of a JSON string, which `JsonScanner` has found to be one. */
final class JsonText {
  private JsonText() {}

  /** Returns the string between the quotes at `begin` - 1 and `end` in UTF-8; null where it has half of a surrogate pair. */
  static byte[] unescape(byte[] data, int begin, int end) {
    byte[] text = new byte[end - begin]; // an escape is never shorter than its character
    int length = 0;
    int at = begin;
    while (at < end) {
      byte found = data[at++];
      if (found != '\\') {
        text[length++] = found;
        continue;
      }
      int character = escaped(data[at++]);
      if (character == 'u') {
        character = hexadecimal(data, at);
        at += 4;
        if (Character.isHighSurrogate((char) character)) {
          boolean isPair = at + 6 <= end && data[at] == '\\' && data[at + 1] == 'u';
          int low = isPair ? hexadecimal(data, at + 2) : 0;
          if (!Character.isLowSurrogate((char) low)) {
            return null;
          }
          character = Character.toCodePoint((char) character, (char) low);
          at += 6;
        } else if (Character.isLowSurrogate((char) character)) {
          return null;
        }
        length = put(text, length, character);
      } else {
        text[length++] = (byte) character;
      }
    }
    return Arrays.copyOf(text, length);
  }

  /** The character of an escape of two; 'u' where four digits follow. */
  private static int escaped(byte letter) {
    switch (letter) {
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      default:
        return letter;
    }
  }

  private static int hexadecimal(byte[] data, int at) {
    int number = 0;
    for (int digit = at; digit < at + 4; digit++) {
      number = number << 4 | Character.digit(data[digit], 16);
    }
    return number;
  }

  private static int put(byte[] text, int length, int character) {
    if (character < 0x80) {
      text[length++] = (byte) character;
    } else if (character < 0x800) {
      text[length++] = (byte) (0xC0 | character >> 6);
      text[length++] = (byte) (0x80 | character & 0x3F);
    } else if (character < 0x10000) {
      text[length++] = (byte) (0xE0 | character >> 12);
      text[length++] = (byte) (0x80 | character >> 6 & 0x3F);
      text[length++] = (byte) (0x80 | character & 0x3F);
    } else {
      text[length++] = (byte) (0xF0 | character >> 18);
      text[length++] = (byte) (0x80 | character >> 12 & 0x3F);
      text[length++] = (byte) (0x80 | character >> 6 & 0x3F);
      text[length++] = (byte) (0x80 | character & 0x3F);
    }
    return length;
  }
}
