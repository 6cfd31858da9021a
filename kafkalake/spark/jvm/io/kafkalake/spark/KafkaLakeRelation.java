package io.kafkalake.spark;

import java.util.Map;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.PrunedFilteredScan;
import org.apache.spark.sql.types.StructType;

/**
 * A topic as a table of a session catalogue that is not Spark's own, such as Delta's: Spark reads those by its first data source API.
 *
 * The rows are those of a data frame over the topic with the columns and filters of the query. Spark applies all filters again, so
 * those that are not translated are only read for nothing. What is inserted goes the way of a data frame that is written.
 */
final class KafkaLakeRelation extends BaseRelation implements PrunedFilteredScan, InsertableRelation {
  private final SQLContext context;
  private final Map<String, String> options;
  private final StructType schema;

  KafkaLakeRelation(SQLContext context, Map<String, String> options, StructType schema) {
    this.context = context;
    this.options = options;
    this.schema = schema;
  }

  @Override
  public SQLContext sqlContext() {
    return context;
  }

  @Override
  public StructType schema() {
    return schema;
  }

  /** The rows are Spark's internal ones already. */
  @Override
  public boolean needConversion() {
    return false;
  }

  @Override
  @SuppressWarnings({"unchecked", "rawtypes"})
  public RDD<Row> buildScan(String[] columns, Filter[] filters) {
    org.apache.spark.sql.Dataset<Row> frame =
        context.sparkSession().read().format(KafkaLakeProvider.NAME).schema(schema).options(options).load();
    for (Filter filter : filters) {
      Column condition = condition(filter);
      if (condition != null) {
        frame = frame.filter(condition);
      }
    }
    Column[] wanted = new Column[columns.length];
    for (int i = 0; i < columns.length; i++) {
      wanted[i] = functions.col("`" + columns[i].replace("`", "``") + "`");
    }
    return (RDD) ((Dataset<Row>) frame.select(wanted)).queryExecution().toRdd();
  }

  @Override
  public void insert(org.apache.spark.sql.Dataset<Row> rows, boolean overwrite) {
    SaveMode mode = overwrite ? SaveMode.Overwrite : SaveMode.Append;
    rows.write().format(KafkaLakeProvider.NAME).options(options).mode(mode).save();
  }

  private static Column condition(Filter filter) {
    if (filter.references().length != 1) {
      return null;
    }
    Column column = functions.col(filter.references()[0]);
    if (filter instanceof EqualTo) {
      return column.equalTo(((EqualTo) filter).value());
    }
    if (filter instanceof GreaterThan) {
      return column.gt(((GreaterThan) filter).value());
    }
    if (filter instanceof GreaterThanOrEqual) {
      return column.geq(((GreaterThanOrEqual) filter).value());
    }
    if (filter instanceof LessThan) {
      return column.lt(((LessThan) filter).value());
    }
    if (filter instanceof LessThanOrEqual) {
      return column.leq(((LessThanOrEqual) filter).value());
    }
    if (filter instanceof In) {
      return column.isin(((In) filter).values());
    }
    return null;
  }
}
