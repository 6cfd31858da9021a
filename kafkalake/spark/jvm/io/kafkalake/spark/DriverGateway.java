package io.kafkalake.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.sql.classic.SparkSession;

/**
 * The way from the planning process to this driver's Spark, for procedures that have Spark do work: the server that PySpark itself uses.
 *
 * It is started with the first such procedure, listens on this machine only, and takes nobody without its secret.
 */
final class DriverGateway {
  private static Py4JServer server;

  private DriverGateway() {}

  /** Puts the port and the secret of the server into a question. */
  static synchronized void putInto(ObjectNode question) {
    if (server == null) {
      Py4JServer started = new Py4JServer(SparkSession.active().sparkContext().conf());
      started.start();
      server = started;
    }
    question.putObject("gateway").put("port", server.getListeningPort()).put("secret", server.secret());
  }
}
