package io.kafkalake.spark;

/** An error of the planning process: the name of Python's class, and its sentence; or that there is no answer. */
final class PlannerException extends RuntimeException {
  private static final long serialVersionUID = 1L;
  private final String error;

  PlannerException(String error, String sentence) {
    super(sentence);
    this.error = error;
  }

  PlannerException(String sentence, Throwable cause) {
    super(sentence, cause);
    this.error = "";
  }

  /** Whether Python raised this class. */
  boolean is(String name) {
    return error.equals(name);
  }

  /** As Spark's exception for a statement that cannot be carried out: users see the sentence and no trace. */
  RuntimeException forUsers() {
    return KafkaLakeExtensions.refused(getMessage());
  }
}
