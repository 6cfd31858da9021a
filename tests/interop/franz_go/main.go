// Uses a cluster through franz-go, by commands on lines of standard input, and prints a line of JSON for each: {"found": [...]}, or {"error": text}.
//
//	write TOPIC FIRST COUNT   idempotent records with the values FIRST.., one partition after the other; found: those acknowledged
//	read TOPIC GROUP COUNT    COUNT records that are committed, in a group that commits; found: their values
//	transact TOPIC ID VALUE   a record with the value VALUE to each partition in a transaction; found: VALUE
//	abort TOPIC ID VALUE      the same, aborted; found: nothing
//	releases                  found: the release that each broker is by the APIs that it names
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const timeout = 60 * time.Second

func main() {
	servers := strings.Split(os.Args[1], ",")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		found, err := do(servers, strings.Fields(lines.Text()))
		answer := map[string]any{"found": found}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}

func do(servers []string, words []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch words[0] {
	case "write":
		first, _ := strconv.Atoi(words[2])
		count, _ := strconv.Atoi(words[3])
		return write(ctx, servers, words[1], first, count)
	case "read":
		count, _ := strconv.Atoi(words[3])
		return read(ctx, servers, words[1], words[2], count)
	case "transact":
		return transact(ctx, servers, words[1], words[2], words[3], kgo.TryCommit)
	case "abort":
		return transact(ctx, servers, words[1], words[2], words[3], kgo.TryAbort)
	case "releases":
		return releases(ctx, servers)
	}
	return nil, fmt.Errorf("unknown word %s", words[0])
}

func write(ctx context.Context, servers []string, topic string, first, count int) ([]string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []string{}
	for number := first; number < first+count; number++ {
		value := strconv.Itoa(number)
		client.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}, func(record *kgo.Record, failed error) {
			if failed == nil {
				found = append(found, string(record.Value))
			} else if err == nil {
				err = failed
			}
		})
		time.Sleep(time.Millisecond) // so that a leader can be killed in the middle
	}
	if flushed := client.Flush(ctx); flushed != nil {
		return nil, flushed
	}
	return found, err
}

func read(ctx context.Context, servers []string, topic, group string, count int) ([]string, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []string{}
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, ctx.Err())
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, string(record.Value)) })
	}
	return found, client.CommitUncommittedOffsets(ctx)
}

func transact(
	ctx context.Context, servers []string, topic, id, value string, how kgo.TransactionEndTry,
) ([]string, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	details, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := client.BeginTransaction(); err != nil {
		return nil, err
	}
	for partition := range details[topic].Partitions {
		record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return nil, err
		}
	}
	if err := client.EndTransaction(ctx, how); err != nil {
		return nil, err
	}
	if how == kgo.TryAbort {
		return []string{}, nil
	}
	return []string{value}, nil
}

func releases(ctx context.Context, servers []string) ([]string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	versions, err := kadm.NewClient(client).ApiVersions(ctx)
	if err != nil {
		return nil, err
	}
	found := []string{}
	for _, each := range versions.Sorted() {
		found = append(found, each.VersionGuess())
	}
	return found, nil
}
