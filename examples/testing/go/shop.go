// Package shop is the application that is tested: a shop that takes orders, and tills that bill each order once.
//
// A till reads "orders" and writes "payments", and what it cannot read to "orders.dead", in one transaction with the
// offset up to which it has read: whatever breaks, an order is billed once.
package shop

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Order is what a customer wants.
type Order struct {
	Customer string `json:"customer"`
	Amount   *int   `json:"amount"`
}

// Shop takes orders.
type Shop struct{ client *kgo.Client }

// NewShop connects a shop.
func NewShop(servers []string) (*Shop, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DefaultProduceTopic("orders"),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
	return &Shop{client}, err
}

// Place an order, and return its offset; an error if it is not known in time whether it has arrived.
func (s *Shop) Place(ctx context.Context, customer string, amount int) (int64, error) {
	value, err := json.Marshal(Order{customer, &amount})
	if err != nil {
		return 0, err
	}
	type outcome struct {
		offset int64
		err    error
	}
	placed := make(chan outcome, 1)
	// An idempotent producer does not give up what may have arrived; who waits for it may.
	s.client.Produce(context.WithoutCancel(ctx), &kgo.Record{Key: []byte(customer), Value: value},
		func(record *kgo.Record, err error) { placed <- outcome{record.Offset, err} })
	select {
	case known := <-placed:
		return known.offset, known.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Close the shop.
func (s *Shop) Close() { s.client.Close() }

// Till bills orders; several tills share the work.
type Till struct{ session *kgo.GroupTransactSession }

// NewTill connects a till. While a till of the same name is being ended, which died with a transaction, it waits.
func NewTill(ctx context.Context, servers []string, name string) (*Till, error) {
	for {
		session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(servers...), kgo.TransactionalID(name),
			kgo.ConsumerGroup("tills"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.TransactionTimeout(time.Minute), kgo.RequireStableFetchOffsets(),
			kgo.MetadataMinAge(50*time.Millisecond), kgo.MetadataMaxAge(500*time.Millisecond),
			kgo.HeartbeatInterval(200*time.Millisecond),
			kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
		if err != nil {
			return nil, err
		}
		_, _, err = session.Client().ProducerID(ctx)
		if err == nil {
			return &Till{session}, nil
		}
		session.Close()
		if !errors.Is(err, kerr.ConcurrentTransactions) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// Bill so many orders, or as many as there are until the context ends; returns how many.
func (t *Till) Bill(ctx context.Context, orders int) (int, error) {
	billed := 0
	for billed < orders && ctx.Err() == nil {
		found := t.session.PollRecords(ctx, 1)
		if found.NumRecords() == 0 {
			continue
		}
		if err := t.session.Begin(); err != nil {
			return billed, err
		}
		found.EachRecord(func(order *kgo.Record) {
			t.session.Produce(ctx, &kgo.Record{Topic: target(order.Value), Key: order.Key, Value: order.Value}, nil)
		})
		committed, err := t.session.End(ctx, kgo.TryCommit)
		if err != nil {
			return billed, err
		}
		if committed {
			billed += found.NumRecords()
		}
	}
	return billed, nil
}

// Begin to bill one order, and do not get to the commit, as a till does that dies there.
func (t *Till) Begin(ctx context.Context) error {
	found := t.session.PollRecords(ctx, 1)
	if err := t.session.Begin(); err != nil {
		return err
	}
	for _, order := range found.Records() {
		record := &kgo.Record{Topic: "payments", Key: order.Key, Value: order.Value}
		if err := t.session.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Close hands the partitions over.
func (t *Till) Close() { t.session.Close() }

func target(value []byte) string {
	var order Order
	if json.Unmarshal(value, &order) != nil || order.Amount == nil {
		return "orders.dead"
	}
	return "payments"
}

// Read so much of what a topic has, as who comes last would read it.
func Read(ctx context.Context, servers []string, topic string, count int) ([]string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	values := []string{}
	for len(values) < count && ctx.Err() == nil {
		for _, record := range client.PollFetches(ctx).Records() {
			values = append(values, string(record.Value))
		}
	}
	return values, ctx.Err()
}
