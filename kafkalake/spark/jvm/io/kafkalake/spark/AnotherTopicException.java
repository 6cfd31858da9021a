package io.kafkalake.spark;

import java.io.IOException;

/** A directory that belongs to another topic of the same name than the one that was planned. */
final class AnotherTopicException extends IOException {
  private static final long serialVersionUID = 1L;

  AnotherTopicException(String sentence) {
    super(sentence);
  }
}
