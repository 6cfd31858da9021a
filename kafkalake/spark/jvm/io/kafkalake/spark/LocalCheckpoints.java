package io.kafkalake.spark;

import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.internal.SQLConf;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Writes the files of a checkpoint that is on this machine, two for each micro-batch, as Spark does: beside the file, then renamed.
 *
 * Hadoop starts processes for each such file where its native library is missing, as it is in PySpark: `chmod` and `readlink`, which takes
 * 40 ms a file, together more than half of a small batch. Here these are calls of the system. All else, and checkpoints elsewhere, are
 * Spark's own. It is public for Spark, which makes it by its name.
 */
public final class LocalCheckpoints implements CheckpointFileManager, CheckpointFileManager.RenameHelperMethods {
  private static final String SETTING = SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS().parent().key();
  private final CheckpointFileManager sparks;
  private final Set<PosixFilePermission> permissions;

  public LocalCheckpoints(Path directory, Configuration settings) {
    Configuration without = new Configuration(settings);
    without.unset(SETTING);
    sparks = CheckpointFileManager.create(directory, without);
    permissions = PosixFilePermissions.fromString(FsPermission.getFileDefault().applyUMask(FsPermission.getUMask(settings)).toString());
  }

  /**
   * Has the session use it from its first stream of topics on, unless it has another one set. A cluster's executors, which write files of
   * states, may lack the jar, and their checkpoints are elsewhere.
   */
  static void useFor(LogicalPlan plan, SparkSession session) {
    if (plan.isStreaming()
        && !session.sessionState().conf().contains(SETTING)
        && session.sparkContext().isLocal()
        && CollectionConverters.asJava(plan.collectLeaves()).stream().anyMatch(LocalCheckpoints::isOfTopics)
        && session.sessionState().newHadoopConf().get(SETTING) == null) {
      session.sessionState().conf().setConfString(SETTING, LocalCheckpoints.class.getName());
    }
  }

  private static boolean isOfTopics(LogicalPlan leaf) {
    Table table = leaf instanceof StreamingRelationV2 ? ((StreamingRelationV2) leaf).table() : null;
    return table instanceof KafkaLakeTable || table instanceof TopicTable;
  }

  @Override
  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean mayReplace) {
    return isLocal()
        ? new CheckpointFileManager.RenameBasedFSDataOutputStream(this, path, mayReplace)
        : sparks.createAtomic(path, mayReplace);
  }

  /** A stream of a file, as Spark's interrupts of a query's thread close channels. */
  @Override
  public FSDataOutputStream createTempFile(Path path) {
    try {
      FSDataOutputStream written = new FSDataOutputStream(new BufferedOutputStream(new FileOutputStream(file(path).toFile())), null);
      Files.setPosixFilePermissions(file(path), permissions);
      return written;
    } catch (IOException error) {
      throw KafkaLakeExtensions.unchecked(error);
    }
  }

  /** Hadoop's checksums of the file before are removed; Spark verifies none of a checkpoint. */
  @Override
  public void renameTempFile(Path from, Path to, boolean mayReplace) {
    try {
      if (!mayReplace && Files.exists(file(to))) {
        throw new FileAlreadyExistsException("rename destination " + to + " already exists.");
      }
      Files.deleteIfExists(file(to).resolveSibling("." + to.getName() + ".crc"));
      Files.move(file(from), file(to), StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException error) {
      throw KafkaLakeExtensions.unchecked(error);
    }
  }

  private static java.nio.file.Path file(Path path) {
    return java.nio.file.Path.of(path.toUri().getPath());
  }

  // Spark's own

  @Override
  public boolean isLocal() {
    return sparks.isLocal();
  }

  @Override
  public FSDataInputStream open(Path path) {
    return sparks.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return sparks.list(path, filter);
  }

  @Override
  public FileStatus[] list(Path path) {
    return sparks.list(path);
  }

  @Override
  public void mkdirs(Path path) {
    sparks.mkdirs(path);
  }

  @Override
  public boolean exists(Path path) {
    return sparks.exists(path);
  }

  @Override
  public void delete(Path path) {
    sparks.delete(path);
  }

  @Override
  public Path createCheckpointDirectory() {
    return sparks.createCheckpointDirectory();
  }

  @Override
  public void close() {
    sparks.close();
  }
}
