package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func ptr(text string) *string { return &text }

func adminTopics() {
	for _, one := range must(admin.CreateTopics(ctx, 3, 1, map[string]*string{"retention.ms": ptr("60000")}, topic)) {
		check(one.Err)
	}
	expect(len(must(admin.ListTopics(ctx, topic))[topic].Partitions), 3)
	for _, one := range must(admin.DeleteTopics(ctx, topic)) {
		check(one.Err)
	}
	until(func() bool { return !must(admin.ListTopics(ctx)).Has(topic) })
}

func adminConfigs() {
	create(1)
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: ptr("70000")}}
	for turn, alter := range []func(context.Context, []kadm.AlterConfig, ...string) (kadm.AlterConfigsResponses, error){
		admin.AlterTopicConfigs, admin.AlterTopicConfigsState,
	} {
		*change[0].Value = fmt.Sprint(70000 + turn)
		for _, one := range must(alter(ctx, change, topic)) {
			check(one.Err)
		}
		for _, one := range must(admin.DescribeTopicConfigs(ctx, topic))[0].Configs {
			if one.Key == "retention.ms" {
				expect(*one.Value, *change[0].Value)
			}
		}
	}
	expect(len(must(admin.DescribeBrokerConfigs(ctx, 1))[0].Configs) > 100, true)
}

func adminPartitions() {
	create(1)
	for _, one := range must(admin.UpdatePartitions(ctx, 4, topic)) {
		check(one.Err)
	}
	expect(len(must(admin.ListTopics(ctx, topic))[topic].Partitions), 4)
}

func adminDeleteRecords() {
	create(1)
	sent(10, 1)
	until3 := kadm.Offsets{}
	until3.AddOffset(topic, 0, 3, -1)
	check(must(admin.DeleteRecords(ctx, until3)).Error())
	found, _ := must(admin.ListStartOffsets(ctx, topic)).Lookup(topic, 0)
	expect(found.Offset, 3)
}

func adminOffsets() {
	create(1)
	sent(10, 1)
	last, _ := must(admin.ListEndOffsets(ctx, topic)).Lookup(topic, 0)
	largest, _ := must(admin.ListMaxTimestampOffsets(ctx, topic)).Lookup(topic, 0)
	expect([]int64{last.Offset, largest.Offset}, []int64{10, 9})
}

func adminGroups() {
	create(1)
	sent(10, 1)
	one := member()
	take(one, 10)
	check(one.CommitUncommittedOffsets(ctx))
	_, known := must(admin.ListGroups(ctx))[topic]
	expect(known, true)
	expect(len(must(admin.DescribeGroups(ctx, topic))[topic].Members), 1)
	one.Close()
	changed := kadm.Offsets{}
	changed.AddOffset(topic, 0, 2, -1)
	check(admin.CommitAllOffsets(ctx, topic, changed))
	at, _ := must(admin.FetchOffsets(ctx, topic)).Lookup(topic, 0)
	expect(at.At, 2)
	places := kadm.TopicsSet{}
	places.Add(topic, 0)
	for _, partitions := range must(admin.DeleteOffsets(ctx, topic, places)) {
		for _, err := range partitions {
			check(err)
		}
	}
	check(must(admin.DeleteGroup(ctx, topic)).Err)
	_, known = must(admin.ListGroups(ctx))[topic]
	expect(known, false)
}

func adminAcls() {
	acls := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternPrefixed).
			Operations(kadm.OpRead).Allow("User:somebody").AllowHosts()
	}
	for _, one := range must(admin.CreateACLs(ctx, acls())) {
		check(one.Err)
	}
	expect(len(must(admin.DescribeACLs(ctx, acls()))[0].Described), 1)
	for _, one := range must(admin.DeleteACLs(ctx, acls())) {
		check(one.Err)
	}
	expect(len(must(admin.DescribeACLs(ctx, acls()))[0].Described), 0)
}

func adminQuotas() {
	entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: ptr(topic)}}
	for _, remove := range []bool{false, true} {
		op := kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 1000, Remove: remove}
		for _, one := range must(admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: []kadm.AlterClientQuotaOp{op}}})) {
			check(one.Err)
		}
		asked := []kadm.DescribeClientQuotaComponent{{Type: "client-id", MatchName: ptr(topic), MatchType: 0}}
		expect(len(must(admin.DescribeClientQuotas(ctx, false, asked))) == 0, remove)
	}
}

func adminScram() {
	upsert := kadm.UpsertSCRAM{User: topic, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "a password"}
	for _, one := range must(admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{upsert})) {
		check(one.Err)
	}
	expect(len(must(admin.DescribeUserSCRAMs(ctx, topic))[topic].CredInfos), 1)
	for _, one := range must(admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: topic, Mechanism: kadm.ScramSha256}}, nil)) {
		check(one.Err)
	}
	_, known := must(admin.DescribeUserSCRAMs(ctx))[topic]
	expect(known, false)
}

func adminLogDirs() {
	create(1)
	for _, one := range must(admin.DescribeAllLogDirs(ctx, nil)) {
		for _, directory := range one {
			check(directory.Err)
			if _, known := directory.Topics[topic]; known {
				return
			}
		}
	}
	panic("the topic is in no directory")
}

func adminTransactions() {
	create(1)
	producer := client(kgo.TransactionalID(topic))
	defer producer.Close()
	check(producer.BeginTransaction())
	send(producer, 0, 2, 1)
	_, known := must(admin.ListTransactions(ctx, nil, nil))[topic]
	expect(known, true)
	expect(must(admin.DescribeTransactions(ctx, topic))[topic].State, "Ongoing")
	places := kadm.TopicsSet{}
	places.Add(topic, 0)
	expect(len(must(admin.DescribeProducers(ctx, places))[topic].Partitions[0].ActiveProducers), 1)
	check(producer.EndTransaction(ctx, kgo.TryCommit))
}

func adminCluster() {
	found := must(admin.BrokerMetadata(ctx))
	expect([]int32{found.Controller, found.Brokers[0].NodeID}, []int32{1, 1})
	expect(found.Cluster != "", true)
}

func adminFeatures() {
	versions, err := admin.ApiVersions(ctx)
	check(err)
	found := false
	for _, one := range versions {
		check(one.Err)
		for _, feature := range one.Raw().FinalizedFeatures {
			found = found || feature.Name == "transaction.version"
		}
	}
	expect(found, true)
	same := kadm.FeatureUpdate{Feature: "transaction.version", MaxVersionLevel: 2, UpgradeType: 1}
	check(must(admin.UpdateFeatures(ctx, true, same)).Error())
}

func main() {
	bootstrap, topic = os.Args[1], os.Args[2]
	shared := client()
	admin = kadm.NewClient(shared)
	defer shared.Close()
	operations := map[string]func(){
		"headers_and_times": headersAndTimes, "idempotent": idempotent, "transactions": transactions,
		"transactional_offsets": transactionalOffsets, "offsets": offsets, "group_rebalance": groupRebalance,
		"group_848": group848, "group_static": groupStatic, "group_commit_and_reset": groupCommitAndReset,
		"admin_topics": adminTopics, "admin_configs": adminConfigs, "admin_partitions": adminPartitions,
		"admin_delete_records": adminDeleteRecords, "admin_offsets": adminOffsets, "admin_groups": adminGroups,
		"admin_acls": adminAcls, "admin_quotas": adminQuotas, "admin_scram": adminScram,
		"admin_log_dirs": adminLogDirs, "admin_transactions": adminTransactions, "admin_cluster": adminCluster,
		"admin_features": adminFeatures,
		"share_group": shareGroup, "admin_share_group": adminShareGroup,
	}
	name, argument, _ := strings.Cut(os.Args[3], "_")
	switch name {
	case "acks":
		acks(argument)
	case "codec":
		codec(argument)
	default:
		operations[os.Args[3]]()
	}
}
