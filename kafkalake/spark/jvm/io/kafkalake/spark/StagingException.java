package io.kafkalake.spark;

/** A row that is no record of its topic, or a file that cannot be staged, in one sentence. */
final class StagingException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  StagingException(String sentence) {
    super(sentence);
  }

  StagingException(String sentence, Throwable cause) {
    super(sentence, cause);
  }
}
