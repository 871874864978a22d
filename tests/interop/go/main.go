// What franz-go does with a broker: `main BOOTSTRAP TOPIC OPERATION [ARGUMENT]`, on a topic that it makes itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx, _           = context.WithTimeout(context.Background(), 60*time.Second)
	bootstrap, topic string
	admin            *kadm.Client
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func expect(found, wanted any) {
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		panic(fmt.Sprintf("%v instead of %v", found, wanted))
	}
}

func until(condition func() bool) {
	for !condition() {
		check(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	usual := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchMaxWait(100 * time.Millisecond)}
	return must(kgo.NewClient(append(usual, options...)...))
}

func create(partitions int32) {
	for _, one := range must(admin.CreateTopics(ctx, partitions, 1, nil, topic)) {
		check(one.Err)
	}
}

func records(first, count int, partitions int32) []*kgo.Record {
	var made []*kgo.Record
	for n := first; n < first+count; n++ {
		made = append(made, &kgo.Record{
			Topic: topic, Partition: int32(n) % partitions, Key: fmt.Appendf(nil, "key-%d", n),
			Value: fmt.Appendf(nil, "value-%d", n), Timestamp: time.UnixMilli(int64(1000 * (n + 1))),
		})
	}
	return made
}

func send(producer *kgo.Client, first, count int, partitions int32) {
	check(producer.ProduceSync(ctx, records(first, count, partitions)...).FirstErr())
}

func sent(count int, partitions int32, options ...kgo.Opt) {
	producer := client(options...)
	defer producer.Close()
	send(producer, 0, count, partitions)
}

func take(consumer *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count {
		fetches := consumer.PollRecords(ctx, count-len(found))
		check(fetches.Err0())
		fetches.EachError(func(_ string, _ int32, err error) { check(err) })
		found = append(found, fetches.Records()...)
	}
	return found
}

func all(count int, options ...kgo.Opt) {
	start := kgo.NewOffset().AtStart()
	at := map[string]map[int32]kgo.Offset{topic: {0: start, 1: start}}
	consumer := client(append(options, kgo.ConsumePartitions(at))...)
	defer consumer.Close()
	values := map[string]bool{}
	for _, one := range take(consumer, count) {
		values[string(one.Value)] = true
	}
	expect(len(values), count)
}

func member(options ...kgo.Opt) *kgo.Client {
	usual := []kgo.Opt{
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300 * time.Millisecond),
	}
	return client(append(usual, options...)...)
}

func acks(name string) {
	create(2)
	levels := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	sent(50, 2, kgo.RequiredAcks(levels[name]), kgo.DisableIdempotentWrite())
	all(50)
}

func codec(name string) {
	create(2)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	sent(50, 2, kgo.ProducerBatchCompression(codecs[name]))
	all(50)
}

func headersAndTimes() {
	create(1)
	producer := client()
	defer producer.Close()
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "e", Value: []byte{}}}
	one := &kgo.Record{Topic: topic, Key: []byte("only a key"), Headers: headers, Timestamp: time.UnixMilli(1234)}
	check(producer.ProduceSync(ctx, one).FirstErr())
	consumer := client(kgo.ConsumeTopics(topic))
	defer consumer.Close()
	found := take(consumer, 1)[0]
	expect(string(found.Key), "only a key")
	expect(found.Value == nil, true)
	expect(found.Timestamp.UnixMilli(), 1234)
	expect(found.Headers, headers)
}

func idempotent() {
	create(2)
	sent(300, 2, kgo.ProducerBatchMaxBytes(1024))
	all(300)
}

func transactions() {
	create(2)
	producer := client(kgo.TransactionalID(topic))
	defer producer.Close()
	for _, one := range []struct {
		first  int
		commit bool
	}{{0, true}, {90, false}, {10, true}} {
		check(producer.BeginTransaction())
		send(producer, one.first, 10, 2)
		check(producer.EndTransaction(ctx, kgo.TransactionEndTry(one.commit)))
	}
	all(20, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	all(30)
	first, second := client(kgo.TransactionalID(topic+"-f")), client(kgo.TransactionalID(topic+"-f"))
	defer first.Close()
	defer second.Close()
	for _, one := range []*kgo.Client{first, second} {
		check(one.BeginTransaction())
		send(one, 0, 1, 1)
	}
	err := first.EndTransaction(ctx, kgo.TryCommit)
	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		panic(fmt.Sprintf("the first producer is not fenced: %v", err))
	}
	check(second.EndTransaction(ctx, kgo.TryCommit))
}

func transactionalOffsets() {
	create(2)
	sent(4, 1)
	session := must(kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(topic), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchMaxWait(100*time.Millisecond),
	))
	defer session.Close()
	found := 0
	for found < 4 {
		fetches := session.PollFetches(ctx)
		check(fetches.Err0())
		if fetches.NumRecords() == 0 {
			continue
		}
		check(session.Begin())
		session.Produce(ctx, &kgo.Record{Topic: topic, Partition: 1, Value: []byte("copy")}, nil)
		expect(must(session.End(ctx, kgo.TryCommit)), true)
		found += fetches.NumRecords()
	}
	at, _ := must(admin.FetchOffsets(ctx, topic)).Lookup(topic, 0)
	expect(at.At, 4)
}

func offsets() {
	create(1)
	sent(10, 1)
	for _, one := range []struct {
		listed kadm.ListedOffsets
		offset int64
	}{
		{must(admin.ListEndOffsets(ctx, topic)), 10}, {must(admin.ListStartOffsets(ctx, topic)), 0},
		{must(admin.ListOffsetsAfterMilli(ctx, 4500, topic)), 4},
	} {
		found, _ := one.listed.Lookup(topic, 0)
		expect(found.Offset, one.offset)
	}
}

func groupRebalance() { rebalance() }

func group848() {
	beta := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	rebalance(kgo.WithContext(beta))
	found := must(admin.ListGroupsByType(ctx, []string{"consumer"}))
	if _, known := found[topic]; !known {
		panic("it is no consumer group")
	}
}

func rebalance(options ...kgo.Opt) {
	create(2)
	sent(10, 2)
	one, two := &side{}, &side{}
	first := member(append(options, one.counted()...)...)
	defer first.Close()
	take(first, 10)
	check(first.CommitUncommittedOffsets(ctx))
	second := member(append(options, two.counted()...)...)
	until(func() bool {
		poll(first)
		poll(second)
		return one.held.Load() == 1 && two.held.Load() == 1
	})
	second.Close()
	until(func() bool {
		poll(first)
		return one.held.Load() == 2
	})
	committed := must(admin.FetchOffsets(ctx, topic))
	for partition := int32(0); partition < 2; partition++ {
		at, _ := committed.Lookup(topic, partition)
		expect(at.At, 5)
	}
}

// side counts the partitions that a member has.
type side struct{ held atomic.Int32 }

func (s *side) counted() []kgo.Opt {
	add := func(sign int32) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, one map[string][]int32) {
			s.held.Add(sign * int32(len(one[topic])))
		}
	}
	return []kgo.Opt{kgo.OnPartitionsAssigned(add(1)), kgo.OnPartitionsRevoked(add(-1)), kgo.OnPartitionsLost(add(-1))}
}

func poll(one *kgo.Client) {
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	one.PollFetches(short)
}

func groupStatic() {
	create(1)
	sent(1, 1)
	for turn := 0; turn < 2; turn++ {
		one := member(kgo.InstanceID("one"), kgo.SessionTimeout(20*time.Second))
		take(one, 1)
		members := must(admin.DescribeGroups(ctx, topic))[topic].Members
		expect(len(members), 1)
		expect(*members[0].InstanceID, "one")
		one.Close()
	}
}

func groupCommitAndReset() {
	create(1)
	sent(10, 1)
	one := member()
	expect(take(one, 4)[0].Offset, 0)
	halfway := kadm.Offsets{}
	halfway.Add(kadm.Offset{Topic: topic, Partition: 0, At: 4, LeaderEpoch: -1, Metadata: "halfway"})
	one.Close()
	check(admin.CommitAllOffsets(ctx, topic, halfway))
	one = member()
	defer one.Close()
	expect(take(one, 6)[0].Offset, 4)
	at, _ := must(admin.FetchOffsets(ctx, topic)).Lookup(topic, 0)
	expect(at.Metadata, "halfway")
	for _, seek := range []struct{ to, first int64 }{{1, 1}, {5000, 0}} {
		one.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: seek.to}}})
		expect(take(one, int(10-seek.first))[0].Offset, seek.first)
	}
}
