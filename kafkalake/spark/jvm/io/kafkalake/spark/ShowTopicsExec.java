package io.kafkalake.spark;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.StringUtils;
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.LeafExecNode;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.ShowTablesExec;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * Carries out Spark's SHOW TABLES of a lake, and makes its rows without the encoder, and the code for it, that Spark generates, which
 * was a third of the time of the first SHOW TABLES of a session. It is public for Spark, which copies plans.
 */
public final class ShowTopicsExec extends V2CommandExec implements LeafExecNode {
  private final ShowTablesExec statement;

  public ShowTopicsExec(ShowTablesExec statement) {
    this.statement = statement;
  }

  ShowTablesExec statement() {
    return statement;
  }

  @Override
  public Seq<InternalRow> run() {
    List<InternalRow> rows = new ArrayList<>();
    Map<String[], UTF8String> namespaces = new IdentityHashMap<>();
    for (Identifier table : listed()) {
      if (isWanted(table.name())) {
        UTF8String namespace = namespaces.computeIfAbsent(table.namespace(), ShowTopicsExec::quoted);
        rows.add(new GenericInternalRow(new Object[] {namespace, UTF8String.fromString(table.name()), false}));
      }
    }
    return CollectionConverters.asScala(rows).toIndexedSeq();
  }

  private Identifier[] listed() {
    try {
      return statement.catalog().listTables((String[]) statement.namespace().toArray(ClassTag$.MODULE$.apply(String.class)));
    } catch (Exception error) { // a missing namespace, too: Java takes Spark's exception for a checked one
      throw KafkaLakeExtensions.unchecked(error);
    }
  }

  private boolean isWanted(String table) {
    return statement.pattern().isEmpty()
        || StringUtils.filterPattern(CollectionConverters.asScala(List.of(table)).toList(), statement.pattern().get()).nonEmpty();
  }

  private static UTF8String quoted(String[] namespace) {
    return UTF8String.fromString(new CatalogV2Implicits.NamespaceHelper(namespace).quoted());
  }

  // Shown as Spark's own

  @Override
  public Seq<Attribute> output() {
    return statement.output();
  }

  @Override
  public String nodeName() {
    return statement.nodeName();
  }

  @Override
  public scala.collection.Iterator<Object> stringArgs() {
    return statement.stringArgs();
  }

  @Override
  public Seq<SparkPlan> children() {
    return statement.children();
  }

  @Override
  public SparkPlan mapChildren(Function1<SparkPlan, SparkPlan> change) {
    return this;
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
    return this;
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int number) {
    return statement;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof ShowTopicsExec;
  }
}
