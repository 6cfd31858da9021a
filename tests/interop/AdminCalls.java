import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/** Calls the methods of Kafka's Admin and prints each outcome: a line with the method and what it answered, or its exception. */
public class AdminCalls {
  interface Call { Object get() throws Exception; }

  static void call(String name, Call call) {
    String outcome;
    try {
      outcome = String.valueOf(call.get());
    } catch (ExecutionException error) {
      outcome = "!" + error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
    } catch (Exception error) {
      outcome = "!!" + error.getClass().getSimpleName() + ": " + error.getMessage();
    }
    System.out.println(name + "\t" + outcome.replace('\n', ' '));
    System.out.flush();
  }

  static <T> T of(KafkaFuture<T> future) throws Exception {
    return future.get(20, TimeUnit.SECONDS);
  }

  static Map<String, Object> errors(Map<?, ? extends KafkaFuture<?>> futures) throws Exception {
    Map<String, Object> found = new TreeMap<>();
    for (var entry : futures.entrySet()) {
      Object value;
      try {
        value = of(entry.getValue());
      } catch (ExecutionException error) {
        value = error.getCause().getClass().getSimpleName() + "(" + error.getCause().getMessage() + ")";
      }
      found.put(String.valueOf(entry.getKey()), value);
    }
    return found;
  }

  /** Those of the elements that have to do with this run. */
  static <T> List<T> own(Collection<T> all, String topic) {
    return all.stream().filter(each -> each.toString().contains(topic)).sorted(Comparator.comparing(Object::toString)).toList();
  }

  public static void main(String[] arguments) throws Exception {
    int node = Integer.parseInt(arguments[1]);
    String topic = arguments[2];
    TopicPartition first = new TopicPartition(topic, 0);
    TopicPartition unknown = new TopicPartition("nosuch", 0);
    Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", 15000, "request.timeout.ms", 10000);
    try (Admin admin = Admin.create(settings)) {
      call("createTopics", () -> of(admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all()));
      Thread.sleep(500);
      call("describeAcls", () -> of(admin.describeAcls(AclBindingFilter.ANY).values()));
      AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL), new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW));
      call("createAcls", () -> of(admin.createAcls(List.of(acl)).all()));
      call("deleteAcls", () -> of(admin.deleteAcls(List.of(AclBindingFilter.ANY)).all()));
      for (ConfigResource.Type type : ConfigResource.Type.values()) {
        if (type == ConfigResource.Type.UNKNOWN) continue;
        String name = type == ConfigResource.Type.TOPIC ? topic : type.toString().startsWith("BROKER") ? "" + node : topic;
        ConfigResource resource = new ConfigResource(type, name);
        call("describeConfigs " + type, () -> { var c = of(admin.describeConfigs(List.of(resource)).all()).get(resource); return c.entries().size() > 0 ? "some" : "none"; });
        String key = type == ConfigResource.Type.BROKER_LOGGER ? "root" : type == ConfigResource.Type.CLIENT_METRICS ? "interval.ms" : type == ConfigResource.Type.GROUP ? "consumer.session.timeout.ms" : type == ConfigResource.Type.TOPIC ? "retention.ms" : "log.cleaner.threads";
        String value = type == ConfigResource.Type.BROKER_LOGGER ? "INFO" : type == ConfigResource.Type.TOPIC ? "7200000" : type == ConfigResource.Type.BROKER ? "1" : type == ConfigResource.Type.GROUP ? "50000" : "60000";
        call("incrementalAlterConfigs " + type, () -> of(admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)))).all()));
      }
      Thread.sleep(500);
      ConfigResource loggers = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "" + node);
      for (var type : AlterConfigOp.OpType.values()) {
        for (String name : List.of("root", "nosuch")) {
          var operation = new AlterConfigOp(new ConfigEntry(name, "LOUD"), type);
          call("level " + type + " " + name, () -> errors(admin.incrementalAlterConfigs(Map.of(loggers, List.of(operation))).values()));
        }
      }
      call("listConfigResources", () -> own(of(admin.listConfigResources().all()), topic));
      call("listConfigResources metrics", () -> own(of(admin.listConfigResources(Set.of(ConfigResource.Type.BROKER, ConfigResource.Type.BROKER_LOGGER), new ListConfigResourcesOptions()).all()), "name"));
      call("alterReplicaLogDirs", () -> errors(admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica(topic, 0, node), "/nosuch")).values()));
      call("describeReplicaLogDirs", () -> { var m = of(admin.describeReplicaLogDirs(List.of(new TopicPartitionReplica(topic, 0, node))).all()); return m.size() + " " + m.values().iterator().next().getCurrentReplicaOffsetLag(); });
      call("describeLogDirs", () -> of(admin.describeLogDirs(List.of(node)).allDescriptions()).get(node).size());
      call("createDelegationToken", () -> of(admin.createDelegationToken().delegationToken()));
      call("describeDelegationToken", () -> of(admin.describeDelegationToken().delegationTokens()));
      call("renewDelegationToken", () -> of(admin.renewDelegationToken(new byte[] {1}).expiryTimestamp()));
      call("expireDelegationToken", () -> of(admin.expireDelegationToken(new byte[] {1}).expiryTimestamp()));
      for (ElectionType type : ElectionType.values()) {
        call("electLeaders " + type, () -> { var m = of(admin.electLeaders(type, Set.of(first, unknown)).partitions()); var t = new TreeMap<String, Object>(); m.forEach((k, v) -> t.put(k.toString(), v.map(e -> e.getClass().getSimpleName() + ":" + e.getMessage()))); return t; });
        call("electLeaders all " + type, () -> of(admin.electLeaders(type, null).partitions()));
      }
      call("alterPartitionReassignments same", () -> errors(admin.alterPartitionReassignments(Map.of(first, Optional.of(new NewPartitionReassignment(List.of(node))))).values()));
      call("alterPartitionReassignments cancel", () -> errors(admin.alterPartitionReassignments(Map.of(first, Optional.empty())).values()));
      call("alterPartitionReassignments unknown broker", () -> errors(admin.alterPartitionReassignments(Map.of(first, Optional.of(new NewPartitionReassignment(List.of(77))))).values()));
      call("alterPartitionReassignments twice", () -> errors(admin.alterPartitionReassignments(Map.of(first, Optional.of(new NewPartitionReassignment(List.of(node, node))))).values()));
      call("alterPartitionReassignments unknown topic", () -> errors(admin.alterPartitionReassignments(Map.of(unknown, Optional.of(new NewPartitionReassignment(List.of(node))))).values()));
      call("listPartitionReassignments", () -> of(admin.listPartitionReassignments().reassignments()));
      call("listPartitionReassignments one", () -> of(admin.listPartitionReassignments(Set.of(first, unknown)).reassignments()));
      call("describeClientQuotas", () -> own(of(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).entrySet(), topic));
      ClientQuotaEntity user = new ClientQuotaEntity(Map.of("user", topic));
      call("alterClientQuotas", () -> errors(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9))))).values()));
      call("alterClientQuotas unknown", () -> errors(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op("nosuch", 1e9))))).values()));
      Thread.sleep(500);
      call("describeClientQuotas again", () -> own(of(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).entrySet(), topic));
      for (var each : Map.of("user", "controller_mutation_rate", "client-id", "controller_mutation_rate", "ip", "connection_creation_rate").entrySet()) {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(each.getKey(), each.getKey().equals("ip") ? "192.0.2.7" : topic));
        call("alterClientQuotas " + each.getValue() + " of " + each.getKey(), () -> errors(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(each.getValue(), 7.0))))).values()));
      }
      call("describeUserScramCredentials", () -> own(of(admin.describeUserScramCredentials().all()).values(), topic));
      call("describeUserScramCredentials one", () -> of(admin.describeUserScramCredentials(List.of(topic)).all()));
      call("alterUserScramCredentials", () -> errors(admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(topic, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).values()));
      Thread.sleep(500);
      call("describeUserScramCredentials again", () -> own(of(admin.describeUserScramCredentials().all()).values(), topic));
      call("alterUserScramCredentials delete", () -> errors(admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(topic, ScramMechanism.SCRAM_SHA_512))).values()));
      call("describeFeatures", () -> of(admin.describeFeatures().featureMetadata()).finalizedFeatures().get("transaction.version"));
      call("updateFeatures same", () -> errors(admin.updateFeatures(Map.of("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).values()));
      call("updateFeatures unknown", () -> errors(admin.updateFeatures(Map.of("nosuch", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).values()));
      call("updateFeatures too high", () -> errors(admin.updateFeatures(Map.of("group.version", new FeatureUpdate((short) 99, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).values()));
      call("updateFeatures down", () -> errors(admin.updateFeatures(Map.of("transaction.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions().validateOnly(true)).values()));
      call("describeMetadataQuorum", () -> { var q = of(admin.describeMetadataQuorum().quorumInfo()); return q.leaderId() == node ? "leader, voters " + q.voters().size() + " observers " + q.observers().size() + " nodes " + q.nodes().size(): q; });
      call("unregisterBroker", () -> of(admin.unregisterBroker(77).all()));
      call("addRaftVoter", () -> of(admin.addRaftVoter(77, Uuid.ONE_UUID, Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1))).all()));
      call("removeRaftVoter", () -> of(admin.removeRaftVoter(77, Uuid.ONE_UUID).all()));
      call("describeProducers", () -> of(admin.describeProducers(List.of(first)).all()).size());
      call("describeTransactions", () -> of(admin.describeTransactions(List.of(topic)).all()));
      call("listTransactions", () -> own(of(admin.listTransactions().all()), topic));
      call("fenceProducers", () -> of(admin.fenceProducers(List.of(topic)).all()));
      call("abortTransaction", () -> of(admin.abortTransaction(new AbortTransactionSpec(first, 7, (short) 0, 0)).all()));
      call("listGroups", () -> own(of(admin.listGroups().all()), topic));
      call("listConsumerGroups", () -> own(of(admin.listConsumerGroups().all()), topic));
      call("describeConsumerGroups", () -> errors(admin.describeConsumerGroups(List.of(topic)).describedGroups()));
      call("describeClassicGroups", () -> errors(admin.describeClassicGroups(List.of(topic)).describedGroups()));
      call("alterConsumerGroupOffsets", () -> of(admin.alterConsumerGroupOffsets(topic, Map.of(first, new org.apache.kafka.clients.consumer.OffsetAndMetadata(0))).all()));
      call("listConsumerGroupOffsets", () -> of(admin.listConsumerGroupOffsets("g").partitionsToOffsetAndMetadata()));
      call("removeMembersFromConsumerGroup", () -> of(admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions()).all()));
      call("deleteConsumerGroupOffsets", () -> of(admin.deleteConsumerGroupOffsets(topic, Set.of(first)).all()));
      call("deleteConsumerGroups", () -> of(admin.deleteConsumerGroups(List.of(topic)).all()));
      call("describeShareGroups", () -> errors(admin.describeShareGroups(List.of(topic)).describedGroups()));
      call("listShareGroupOffsets", () -> of(admin.listShareGroupOffsets(Map.of(topic, new ListShareGroupOffsetsSpec())).all()));
      call("alterShareGroupOffsets", () -> of(admin.alterShareGroupOffsets(topic, Map.of(first, 0L)).all()));
      call("deleteShareGroupOffsets", () -> of(admin.deleteShareGroupOffsets(topic, Set.of(topic)).all()));
      call("deleteShareGroups", () -> errors(admin.deleteShareGroups(List.of(topic)).deletedGroups()));
      call("describeStreamsGroups", () -> errors(admin.describeStreamsGroups(List.of(topic)).describedGroups()));
      call("listStreamsGroupOffsets", () -> of(admin.listStreamsGroupOffsets(Map.of(topic, new ListStreamsGroupOffsetsSpec())).all()));
      call("alterStreamsGroupOffsets", () -> of(admin.alterStreamsGroupOffsets(topic, Map.of(first, new org.apache.kafka.clients.consumer.OffsetAndMetadata(0))).all()));
      call("deleteStreamsGroupOffsets", () -> of(admin.deleteStreamsGroupOffsets(topic, Set.of(first)).all()));
      call("deleteStreamsGroups", () -> errors(admin.deleteStreamsGroups(List.of(topic)).deletedGroups()));
      call("forceTerminateTransaction", () -> of(admin.forceTerminateTransaction(topic).result()));
      call("listClientMetricsResources", () -> own(of(admin.listClientMetricsResources().all()), topic));
      call("clientInstanceId", () -> admin.clientInstanceId(java.time.Duration.ofSeconds(2)));
      for (GroupType type : List.of(GroupType.SHARE, GroupType.STREAMS))
        call("listGroups " + type, () -> of(admin.listGroups(new ListGroupsOptions().withTypes(Set.of(type))).all()));
      call("updateFeatures share", () -> errors(admin.updateFeatures(Map.of("share.version", new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions().validateOnly(true)).values()));
      call("updateFeatures streams", () -> errors(admin.updateFeatures(Map.of("streams.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions().validateOnly(true)).values()));
      call("listOffsets", () -> of(admin.listOffsets(Map.of(first, OffsetSpec.latest())).all()).get(first).offset());
      call("deleteRecords", () -> of(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(0))).all()));
      call("createPartitions", () -> of(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all()));
      call("describeTopics", () -> of(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size());
      call("describeCluster", () -> of(admin.describeCluster().nodes()).size());
      call("listTopics", () -> own(of(admin.listTopics().names()), topic));
      call("deleteTopics", () -> of(admin.deleteTopics(List.of(topic)).all()));
    }
  }
}
