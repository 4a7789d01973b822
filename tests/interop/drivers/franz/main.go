// franz-go. The commands and what they tell: see ../common.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const keys = 7

type arguments struct {
	Servers         string
	Topic           string
	Group           string
	Codec           string
	Assignor        string
	Instance        string
	Isolation       string
	Protocol        string
	Count           int
	First           int
	PaceMs          int    `json:"pace_ms"`
	SessionMs       int    `json:"session_ms"`
	TransactionalID string `json:"transactional_id"`
	Transactions    int
	Per             int
	Doors           []door
}

type door struct {
	Name      string
	Servers   string
	Protocol  string
	Mechanism string
	User      string
	Password  string
	Token     string
	Ca        string
	Identity  string
	PatienceS float64 `json:"patience_s"`
}

var (
	asked   arguments
	stopped = make(chan struct{})
	telling sync.Mutex
	ctx     = context.Background()
)

func emit(event string, fields map[string]any) {
	if fields == nil {
		fields = map[string]any{}
	}
	fields["event"] = event
	line, _ := json.Marshal(fields)
	telling.Lock()
	defer telling.Unlock()
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	options = append(options,
		kgo.SeedBrokers(strings.Split(asked.Servers, ",")...),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(100*time.Millisecond))
	made, err := kgo.NewClient(options...)
	check(err)
	return made
}

func record(number int) *kgo.Record {
	return &kgo.Record{
		Topic: asked.Topic,
		Key:   []byte(fmt.Sprintf("key-%d", number%keys)),
		Value: []byte(fmt.Sprintf("%08d", number)),
	}
}

func over() bool {
	select {
	case <-stopped:
		return true
	default:
		return false
	}
}

func produce() {
	codecs := map[string]kgo.CompressionCodec{
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	codec, known := codecs[asked.Codec]
	if !known {
		codec = kgo.NoCompression()
	}
	made := client(kgo.ProducerBatchCompression(codec))
	defer made.Close()
	for number := asked.First; !over() && (asked.Count == 0 || number < asked.First+asked.Count); number++ {
		made.Produce(ctx, record(number), func(sent *kgo.Record, err error) {
			if err == nil {
				emit("acked", map[string]any{"value": string(sent.Value)})
			} else {
				emit("failed", map[string]any{"value": string(sent.Value), "error": err.Error()})
			}
		})
		if asked.PaceMs > 0 {
			time.Sleep(time.Duration(asked.PaceMs) * time.Millisecond)
		}
	}
	check(made.Flush(ctx))
}

func told(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		if len(partitions[asked.Topic]) > 0 {
			emit(event, map[string]any{"partitions": partitions[asked.Topic]})
		}
	}
}

func consume() {
	balancer := kgo.RangeBalancer()
	if asked.Assignor == "cooperative" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	session := 30 * time.Second
	if asked.SessionMs > 0 {
		session = time.Duration(asked.SessionMs) * time.Millisecond
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.AutoCommitInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(told("assigned")),
		kgo.OnPartitionsRevoked(told("revoked")),
		kgo.OnPartitionsLost(told("revoked")),
	}
	if asked.Instance != "" {
		options = append(options, kgo.InstanceID(asked.Instance))
	}
	if asked.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	if asked.Isolation == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	made := client(options...)
	until, cancel := context.WithCancel(ctx)
	go func() {
		<-stopped
		cancel()
	}()
	for !over() {
		made.PollFetches(until).EachRecord(func(one *kgo.Record) {
			emit("record", map[string]any{
				"partition": one.Partition, "offset": one.Offset, "key": string(one.Key), "value": string(one.Value),
			})
		})
	}
	check(made.CommitUncommittedOffsets(ctx))
	made.Close()
}

func transact() {
	made := client(kgo.TransactionalID(asked.TransactionalID))
	defer made.Close()
	for number := 0; number < asked.Transactions; number++ {
		check(made.BeginTransaction())
		values := []string{}
		for one := number * asked.Per; one < (number+1)*asked.Per; one++ {
			check(made.ProduceSync(ctx, record(one)).FirstErr())
			values = append(values, fmt.Sprintf("%08d", one))
		}
		event, commit := "committed", kgo.TryCommit
		if number%2 == 1 {
			event, commit = "aborted", kgo.TryAbort
		}
		check(made.EndTransaction(ctx, commit))
		emit(event, map[string]any{"values": values})
	}
}

func admin() {
	made := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer made.Close()
	topics := kadm.NewClient(made)
	retention := func() string {
		configs, err := topics.DescribeTopicConfigs(ctx, asked.Topic)
		check(err)
		for _, one := range configs[0].Configs {
			if one.Key == "retention.ms" {
				return *one.Value
			}
		}
		return ""
	}
	partitions := func() int {
		details, err := topics.ListTopics(ctx, asked.Topic)
		check(err)
		return len(details[asked.Topic].Partitions)
	}
	step := func(name string, seen any) { emit("step", map[string]any{"name": name, "seen": seen}) }
	_, err := topics.CreateTopic(ctx, 2, 3, map[string]*string{"retention.ms": kadm.StringPtr("60000")}, asked.Topic)
	check(err)
	for partitions() != 2 {
	}
	step("create", 2)
	// Any broker is asked, also one that has not heard of the topic yet.
	value := retention()
	for value == "" {
		value = retention()
	}
	step("describe", value)
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("120000")}
	_, err = topics.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, asked.Topic)
	check(err)
	for value != "120000" {
		value = retention()
	}
	step("alter", value)
	for n := 0; n < 5; n++ {
		sent := &kgo.Record{Topic: asked.Topic, Partition: 1, Value: []byte("x")}
		check(made.ProduceSync(ctx, sent).FirstErr())
	}
	before := kadm.Offsets{}
	before.AddOffset(asked.Topic, 1, 2, -1)
	deleted, err := topics.DeleteRecords(ctx, before)
	check(err)
	low, _ := deleted.Lookup(asked.Topic, 1)
	check(low.Err)
	step("delete records", low.LowWatermark)
	grown, err := topics.UpdatePartitions(ctx, 4, asked.Topic)
	check(err)
	check(grown.Error())
	for partitions() != 4 {
	}
	step("grow", 4)
	_, err = topics.DeleteTopics(ctx, asked.Topic)
	check(err)
	for {
		details, err := topics.ListTopics(ctx, asked.Topic)
		check(err)
		if details[asked.Topic].Err == kerr.UnknownTopicOrPartition {
			break
		}
	}
	step("delete", nil)
}

// One record to each of three partitions, by a client as it comes.
func send() {
	made, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(asked.Servers, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	check(err)
	for partition := int32(0); partition < 3; partition++ {
		sent := &kgo.Record{Topic: asked.Topic, Partition: partition, Value: []byte("x")}
		made.Produce(ctx, sent, func(sent *kgo.Record, err error) {
			if err == nil {
				emit("acked", map[string]any{"partition": sent.Partition})
			} else {
				emit("failed", map[string]any{"partition": sent.Partition, "error": err.Error()})
			}
		})
	}
	check(made.Flush(ctx))
	made.Close()
}

// A record of each of three partitions, by a client as it comes.
func read() {
	from := map[int32]kgo.Offset{}
	for partition := int32(0); partition < 3; partition++ {
		from[partition] = kgo.NewOffset().AtStart()
	}
	made, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(asked.Servers, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: from}))
	check(err)
	had := map[int32]bool{}
	for len(had) < 3 && !over() {
		until, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		found := made.PollFetches(until)
		cancel()
		found.EachError(func(_ string, partition int32, err error) {
			if err != context.DeadlineExceeded {
				emit("error", map[string]any{"error": err.Error()})
			}
		})
		found.EachRecord(func(one *kgo.Record) {
			had[one.Partition] = true
			intact := string(one.Value) == strings.Repeat("record", 20)
			emit("record", map[string]any{"partition": one.Partition, "intact": intact})
		})
	}
	made.Close()
}

func (one door) mechanism() sasl.Mechanism {
	switch one.Mechanism {
	case "PLAIN":
		return plain.Auth{User: one.User, Pass: one.Password}.AsMechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: one.Token}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: one.User, Pass: one.Password}.AsSha256Mechanism()
	default:
		return scram.Auth{User: one.User, Pass: one.Password}.AsSha512Mechanism()
	}
}

func (one door) through() error {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(one.Servers, ",")...),
		kgo.ConsumerGroup(one.Name),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if strings.HasSuffix(one.Protocol, "SSL") {
		authority, err := os.ReadFile(one.Ca)
		check(err)
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(authority)
		if one.Identity != "" {
			pair, err := tls.LoadX509KeyPair(one.Identity, one.Identity)
			check(err)
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if strings.HasPrefix(one.Protocol, "SASL") {
		options = append(options, kgo.SASL(one.mechanism()))
	}
	patience := 60.0
	if one.PatienceS > 0 {
		patience = one.PatienceS
	}
	until, cancel := context.WithTimeout(ctx, time.Duration(patience*float64(time.Second)))
	defer cancel()
	made, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer made.Close()
	if err := made.Ping(until); err != nil {
		return err
	}
	value := "by " + one.Name
	if err := made.ProduceSync(until, &kgo.Record{Topic: asked.Topic, Value: []byte(value)}).FirstErr(); err != nil {
		return err
	}
	for until.Err() == nil {
		found := false
		made.PollFetches(until).EachRecord(func(record *kgo.Record) { found = found || string(record.Value) == value })
		if found {
			return nil
		}
	}
	return until.Err()
}

func doors() {
	for _, one := range asked.Doors {
		if err := one.through(); err != nil {
			emit("out", map[string]any{"door": one.Name, "error": err.Error()})
		} else {
			emit("in", map[string]any{"door": one.Name})
		}
	}
}

func main() {
	check(json.Unmarshal([]byte(os.Args[2]), &asked))
	go func() {
		_, _ = io.ReadAll(os.Stdin)
		close(stopped)
	}()
	commands := map[string]func(){"produce": produce, "consume": consume, "transact": transact, "admin": admin, "send": send, "read": read, "doors": doors}
	commands[os.Args[1]]()
	emit("done", nil)
}
