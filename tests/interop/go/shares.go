package main

import (
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fromTheStart lets the share group begin with the first record.
func fromTheStart() {
	earliest := "earliest"
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, topic
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value = "share.auto.offset.reset", &earliest
	resource.Configs = append(resource.Configs, setting)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	one := client()
	defer one.Close()
	answer := must(request.RequestWith(ctx, one))
	expect(answer.Resources[0].ErrorCode, 0)
}

// shared takes so many records and returns their offsets and delivery counts; the others are accepted.
func shared(one *kgo.Client, count int, unlike map[int64]kgo.AckStatus) map[int64]int32 {
	found := map[int64]int32{}
	for len(found) < count {
		fetches := one.PollFetches(ctx)
		check(fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) {
			found[record.Offset] = record.DeliveryCount()
			if status, is := unlike[record.Offset]; is {
				record.Ack(status)
			} else {
				record.Ack(kgo.AckAccept)
			}
		})
		check(one.FlushAcks(ctx))
	}
	return found
}

func shareGroup() {
	create(1)
	sent(10, 1)
	fromTheStart()
	one := client(kgo.ShareGroup(topic), kgo.ConsumeTopics(topic))
	defer one.Close()
	first := shared(one, 10, map[int64]kgo.AckStatus{3: kgo.AckRelease, 4: kgo.AckRelease, 5: kgo.AckReject})
	expect(len(first), 10)
	for _, deliveries := range first {
		expect(deliveries, 1)
	}
	expect(shared(one, 2, nil), map[int64]int32{3: 2, 4: 2})
}

func adminShareGroup() {
	shareGroup()
	described := must(admin.DescribeShareGroups(ctx, topic))[topic]
	check(described.Err)
	expect(described.GroupState, "Empty")
	expect(startOf() >= 3, true) // what was stored last, as with a broker
	changed := kadm.Offsets{}
	changed.Add(kadm.Offset{Topic: topic, Partition: 0, At: 4, LeaderEpoch: -1})
	check(must(admin.AlterShareGroupOffsets(ctx, topic, changed)).Error())
	expect(startOf(), 4)
	must(admin.DeleteShareGroupOffsets(ctx, topic, topic))
	for _, one := range must(admin.DeleteGroups(ctx, topic)) {
		check(one.Err)
	}
}

func startOf() int64 {
	found := must(admin.DescribeShareGroupOffsets(ctx, topic))[topic]
	check(found.Err)
	return found.Offsets[topic][0].StartOffset
}
