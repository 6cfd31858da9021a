package io.kafkalake.spark;

import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * Paths as Python has them.
 *
 * `Path.of(text)` encodes a name as the locale says, and refuses what that has not: under the locale `C` all but ASCII. A URI is made of
 * bytes.
 */
final class SegmentPath {
  /** Python has bytes of names that are no UTF-8 as these characters and more. */
  private static final int FIRST_ESCAPED_BYTE = 0xDC00;

  private SegmentPath() {}

  static Path of(String path) {
    ByteArrayOutputStream name = new ByteArrayOutputStream();
    path.codePoints()
        .forEach(
            character -> {
              boolean isByte = character >= FIRST_ESCAPED_BYTE + 0x80 && character <= FIRST_ESCAPED_BYTE + 0xFF;
              byte[] bytes = {(byte) (character - FIRST_ESCAPED_BYTE)};
              name.writeBytes(isByte ? bytes : Character.toString(character).getBytes(StandardCharsets.UTF_8));
            });
    StringBuilder uri = new StringBuilder("file://");
    for (byte each : name.toByteArray()) {
      uri.append(each == '/' ? "/" : String.format("%%%02X", each));
    }
    return Path.of(URI.create(uri.toString()));
  }
}
