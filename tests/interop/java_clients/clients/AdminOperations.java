package clients;

import static clients.Kit.holds;
import static clients.Kit.same;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** What the admin client does. */
final class AdminOperations {
    static final Map<String, Operations.Operation> ALL = new LinkedHashMap<>();

    static {
        ALL.put("admin_topics", AdminOperations::topics);
        ALL.put("admin_configs", AdminOperations::configs);
        ALL.put("admin_partitions", AdminOperations::partitions);
        ALL.put("admin_delete_records", AdminOperations::deleteRecords);
        ALL.put("admin_offsets", AdminOperations::offsets);
        ALL.put("admin_groups", AdminOperations::groups);
        ALL.put("admin_acls", AdminOperations::acls);
        ALL.put("admin_quotas", AdminOperations::quotas);
        ALL.put("admin_scram", AdminOperations::scram);
        ALL.put("admin_log_dirs", AdminOperations::logDirs);
        ALL.put("admin_transactions", AdminOperations::transactions);
        ALL.put("admin_cluster", AdminOperations::cluster);
        ALL.put("admin_features", AdminOperations::features);
    }

    private AdminOperations() { }

    private static void topics(Kit kit) throws Exception {
        kit.get(kit.admin.createTopics(List.of(new NewTopic(kit.topic, 3, (short) 1).configs(Map.of("retention.ms", "60000")))).all());
        kit.until(() -> kit.get(kit.admin.listTopics().names()).contains(kit.topic));
        TopicDescription found = kit.get(kit.admin.describeTopics(List.of(kit.topic)).allTopicNames()).get(kit.topic);
        same(3, found.partitions().size());
        holds(found.partitions().get(0).leader() != null, "it has a leader");
        same(kit.topic, kit.get(kit.admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(found.topicId())))
            .allTopicIds()).get(found.topicId()).name());
        kit.get(kit.admin.deleteTopics(List.of(kit.topic)).all());
        kit.until(() -> !kit.get(kit.admin.listTopics().names()).contains(kit.topic));
    }

    private static void configs(Kit kit) throws Exception {
        kit.create(1);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, kit.topic);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "70000"), AlterConfigOp.OpType.SET);
        kit.get(kit.admin.incrementalAlterConfigs(Map.of(topic, List.of(set))).all());
        kit.until(() -> retention(kit, topic).value().equals("70000"));
        same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, retention(kit, topic).source());
        AlterConfigOp delete = new AlterConfigOp(new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE);
        kit.get(kit.admin.incrementalAlterConfigs(Map.of(topic, List.of(delete))).all());
        kit.until(() -> retention(kit, topic).value().equals("604800000"));
        holds(kit.get(kit.admin.describeConfigs(List.of(broker)).all()).get(broker).get("log.dirs") != null, "the broker's settings");
    }

    private static ConfigEntry retention(Kit kit, ConfigResource topic) throws Exception {
        return kit.get(kit.admin.describeConfigs(List.of(topic)).all()).get(topic).get("retention.ms");
    }

    private static void partitions(Kit kit) throws Exception {
        kit.create(1);
        kit.get(kit.admin.createPartitions(Map.of(kit.topic, NewPartitions.increaseTo(4))).all());
        kit.until(() -> kit.get(kit.admin.describeTopics(List.of(kit.topic)).allTopicNames()).get(kit.topic).partitions().size() == 4);
    }

    private static void deleteRecords(Kit kit) throws Exception {
        filled(kit);
        same(3L, kit.get(kit.admin.deleteRecords(Map.of(kit.at(0), RecordsToDelete.beforeOffset(3))).lowWatermarks().get(kit.at(0))).lowWatermark());
        same(3L, kit.get(kit.admin.listOffsets(Map.of(kit.at(0), OffsetSpec.earliest())).all()).get(kit.at(0)).offset());
    }

    private static void offsets(Kit kit) throws Exception {
        filled(kit);
        same(10L, kit.get(kit.admin.listOffsets(Map.of(kit.at(0), OffsetSpec.latest())).all()).get(kit.at(0)).offset());
        same(9L, kit.get(kit.admin.listOffsets(Map.of(kit.at(0), OffsetSpec.maxTimestamp())).all()).get(kit.at(0)).offset());
        same(2L, kit.get(kit.admin.listOffsets(Map.of(kit.at(0), OffsetSpec.forTimestamp(2500))).all()).get(kit.at(0)).offset());
    }

    private static void filled(Kit kit) throws Exception {
        kit.create(1);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer()) {
            kit.send(producer, 0, 0, 10);
        }
    }

    private static void groups(Kit kit) throws Exception {
        filled(kit);
        String group = kit.topic;
        try (KafkaConsumer<byte[], byte[]> consumer = kit.consumer("group.id", group)) {
            consumer.subscribe(List.of(kit.topic));
            kit.take(consumer, 10);
            consumer.commitSync();
            holds(kit.get(kit.admin.listConsumerGroups().all()).stream().anyMatch(one -> one.groupId().equals(group)), "it is listed");
            same(1, kit.get(kit.admin.describeConsumerGroups(List.of(group)).all()).get(group).members().size());
        }
        Map<?, OffsetAndMetadata> offsets = kit.get(kit.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        same(10L, offsets.get(kit.at(0)).offset());
        kit.get(kit.admin.alterConsumerGroupOffsets(group, Map.of(kit.at(0), new OffsetAndMetadata(2))).all());
        same(2L, kit.get(kit.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(kit.at(0)).offset());
        kit.get(kit.admin.deleteConsumerGroupOffsets(group, Set.of(kit.at(0))).all());
        holds(kit.get(kit.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(kit.at(0)) == null, "no offset");
        kit.get(kit.admin.alterConsumerGroupOffsets(group, Map.of(kit.at(0), new OffsetAndMetadata(1))).all());
        kit.get(kit.admin.deleteConsumerGroups(List.of(group)).all());
        holds(kit.get(kit.admin.listConsumerGroups().all()).stream().noneMatch(one -> one.groupId().equals(group)), "it is gone");
    }

    private static void acls(Kit kit) throws Exception {
        AclBinding binding = new AclBinding(new ResourcePattern(ResourceType.TOPIC, kit.topic, PatternType.PREFIXED),
            new AccessControlEntry("User:somebody", "*", AclOperation.READ, AclPermissionType.ALLOW));
        kit.get(kit.admin.createAcls(List.of(binding)).all());
        same(List.of(binding), List.copyOf(kit.get(kit.admin.describeAcls(binding.toFilter()).values())));
        same(1, kit.get(kit.admin.deleteAcls(List.of(binding.toFilter())).all()).size());
        same(0, kit.get(kit.admin.describeAcls(binding.toFilter()).values()).size());
    }

    private static void quotas(Kit kit) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of("client-id", kit.topic));
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(List.of(ClientQuotaFilterComponent.ofEntity("client-id", kit.topic)));
        kit.get(kit.admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9))))).all());
        kit.until(() -> Map.of("producer_byte_rate", 1e9).equals(kit.get(kit.admin.describeClientQuotas(filter).entities()).get(entity)));
        kit.get(kit.admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all());
        kit.until(() -> kit.get(kit.admin.describeClientQuotas(filter).entities()).isEmpty());
    }

    private static void scram(Kit kit) throws Exception {
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        kit.get(kit.admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(kit.topic, info, "a password"))).all());
        same(List.of(info), kit.get(kit.admin.describeUserScramCredentials(List.of(kit.topic)).all()).get(kit.topic).credentialInfos());
        kit.get(kit.admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(kit.topic, ScramMechanism.SCRAM_SHA_256))).all());
        holds(!kit.get(kit.admin.describeUserScramCredentials().users()).contains(kit.topic), "the user is gone");
    }

    private static void logDirs(Kit kit) throws Exception {
        filled(kit);
        var found = kit.get(kit.admin.describeLogDirs(List.of(1)).allDescriptions()).get(1);
        holds(found.values().stream().anyMatch(one -> one.replicaInfos().containsKey(kit.at(0)) && one.replicaInfos().get(kit.at(0)).size() > 0), "its size");
        holds(found.values().iterator().next().totalBytes().getAsLong() > 0, "the size of the disk");
    }

    private static void transactions(Kit kit) throws Exception {
        kit.create(1);
        try (KafkaProducer<byte[], byte[]> producer = kit.producer("transactional.id", kit.topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            kit.send(producer, 0, 0, 2);
            holds(kit.get(kit.admin.listTransactions().all()).stream().anyMatch(one -> one.transactionalId().equals(kit.topic)), "it is listed");
            same(Set.of(kit.at(0)), kit.get(kit.admin.describeTransactions(List.of(kit.topic)).all()).get(kit.topic).topicPartitions());
            List<ProducerState> active = kit.get(kit.admin.describeProducers(List.of(kit.at(0))).all()).get(kit.at(0)).activeProducers();
            same(1, active.size());
            ProducerState one = active.get(0);
            same(0L, one.currentTransactionStartOffset().getAsLong());
            kit.get(kit.admin.abortTransaction(new AbortTransactionSpec(kit.at(0), one.producerId(), (short) one.producerEpoch(),
                one.coordinatorEpoch().orElse(0))).all());
            same(3L, kit.get(kit.admin.listOffsets(Map.of(kit.at(0), OffsetSpec.latest())).all()).get(kit.at(0)).offset());
        }
    }

    private static void features(Kit kit) throws Exception {
        String name = "transaction.version";
        reaches(kit, name, 2);
        FeatureUpdate down = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
        kit.get(kit.admin.updateFeatures(Map.of(name, down), new UpdateFeaturesOptions()).all());
        reaches(kit, name, 1);
        FeatureUpdate up = new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE);
        kit.get(kit.admin.updateFeatures(Map.of(name, up), new UpdateFeaturesOptions()).all());
        reaches(kit, name, 2);
    }

    /** A node that another one has answered for may know the level a moment later. */
    private static void reaches(Kit kit, String feature, int level) throws Exception {
        kit.until(() -> level(kit, feature) == level);
    }

    private static int level(Kit kit, String feature) throws Exception {
        return kit.get(kit.admin.describeFeatures().featureMetadata()).finalizedFeatures().get(feature).maxVersionLevel();
    }

    private static void cluster(Kit kit) throws Exception {
        DescribeClusterResult found = kit.admin.describeCluster();
        same(1, kit.get(found.nodes()).size());
        same(1, kit.get(found.controller()).id());
        holds(!kit.get(found.clusterId()).isEmpty(), "the cluster has an id");
    }
}
