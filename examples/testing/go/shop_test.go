package shop

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// world is the cluster that all tests share, as new: `anabranch up --control 127.0.0.1:9190`.
type world struct {
	*testing.T
	Control
	ctx     context.Context
	servers []string
	shop    *Shop
}

func begin(t *testing.T) *world {
	root := os.Getenv("ANABRANCH_CONTROL")
	if root == "" {
		root = "http://127.0.0.1:9190"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w := &world{T: t, Control: Control{root}, ctx: ctx}
	w.must(w.Ask("POST", "/v1/state/reset", struct{}{}, nil))
	for name, partitions := range map[string]int{"orders": 4, "payments": 1, "orders.dead": 1} {
		w.must(w.Ask("POST", "/v1/topics", map[string]any{"topic": name, "partitions": partitions}, nil))
	}
	for _, node := range w.state().Nodes {
		w.servers = append(w.servers, fmt.Sprintf("%s:%d", node.Host, node.Port))
	}
	var err error
	w.shop, err = NewShop(w.servers)
	w.must(err)
	t.Cleanup(w.shop.Close)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) state() State {
	state, err := w.State()
	w.must(err)
	return state
}

func (w *world) place(count int) {
	w.Helper()
	for number := range count {
		_, err := w.shop.Place(w.ctx, fmt.Sprint("customer-", number), number)
		w.must(err)
	}
}

func (w *world) till(name string) *Till {
	till, err := NewTill(w.ctx, w.servers, name)
	w.must(err)
	w.Cleanup(till.Close)
	return till
}

func (w *world) bill(till *Till, orders int) {
	w.Helper()
	billed, err := till.Bill(w.ctx, orders)
	w.must(err)
	if billed != orders {
		w.Fatalf("%d of %d orders billed", billed, orders)
	}
}

// has says that a topic has so many records that can be read, and no two of the same order.
func (w *world) has(topic string, count int) {
	w.Helper()
	values, err := Read(w.ctx, w.servers, topic, count)
	w.must(err)
	slices.Sort(values)
	if len(values) != count || len(slices.Compact(slices.Clone(values))) != count {
		w.Fatalf("%s has %v, and not %d", topic, values, count)
	}
}

func (w *world) rule(rule Rule) string {
	w.Helper()
	name, err := w.Rule(rule)
	w.must(err)
	return name
}

func (w *world) hits(name string, expected int) {
	w.Helper()
	hits, err := w.Hits(name)
	w.must(err)
	if hits != expected {
		w.Fatalf("rule %s has hit %d times, and not %d", name, hits, expected)
	}
}

func TestOrdersAreBilled(t *testing.T) {
	w := begin(t)
	w.place(10)
	w.bill(w.till("till-1"), 10)
	w.has("payments", 10)
}

func TestALeaderThatMovedIsAskedAgain(t *testing.T) {
	w := begin(t)
	rule := w.rule(Rule{"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2})
	w.place(1)
	w.hits(rule, 2)
}

func TestAnOrderWhoseAnswerIsLostIsThereOnce(t *testing.T) {
	w := begin(t)
	rule := w.rule(Rule{"api": "Produce", "topic": "orders", "disconnect": "after", "after_work": true, "times": 1})
	w.place(1)
	w.hits(rule, 1)
	w.place(1)
	values, err := Read(w.ctx, w.servers, "orders", 2)
	w.must(err)
	if len(values) != 2 {
		t.Fatal(values)
	}
}

func TestASlowBrokerIsNotWaitedForWithoutEnd(t *testing.T) {
	w := begin(t)
	rule := w.rule(Rule{"api": "Produce", "topic": "orders", "hold": true})
	impatient, cancel := context.WithTimeout(w.ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := w.shop.Place(impatient, "ada", 1); err == nil {
		t.Fatal("nobody has confirmed that order")
	}
	w.must(w.Release(rule))
	w.place(1)
}

func TestAnOrderIsPlacedWhenTheBrokersHaveItAndNotBefore(t *testing.T) {
	w := begin(t)
	rule := w.rule(Rule{"api": "Produce", "topic": "orders", "hold": true})
	placed := make(chan error, 1)
	go func() {
		_, err := w.shop.Place(w.ctx, "ada", 1)
		placed <- err
	}()
	w.must(w.WaitHit(rule))
	select {
	case <-placed:
		t.Fatal("placed before it was there")
	default:
	}
	w.must(w.Release(rule))
	w.must(<-placed)
}

func TestTwoTillsShareTheWork(t *testing.T) {
	w := begin(t)
	done := make(chan int, 2)
	brief, cancel := context.WithTimeout(w.ctx, 6*time.Second)
	defer cancel()
	for _, name := range []string{"till-1", "till-2"} {
		till := w.till(name)
		go func() {
			billed, _ := till.Bill(brief, 40)
			done <- billed
		}()
	}
	w.must(w.Wait("group", "tills", "members", "2", "state", "Stable"))
	w.place(40)
	first, second := <-done, <-done
	if first+second != 40 || first == 0 || second == 0 {
		t.Fatalf("one has billed %d, the other %d", first, second)
	}
	w.has("payments", 40)
}

func TestATillGoesOnWhereTheOneBeforeHasStopped(t *testing.T) {
	w := begin(t)
	w.place(3)
	first := w.till("till-1")
	w.bill(first, 3)
	first.Close()
	_, err := w.shop.Place(w.ctx, "customer-3", 3)
	w.must(err)
	w.bill(w.till("till-2"), 1)
	w.has("payments", 4)
}

func TestATillThatDiesBeforeItsCommitHasBilledNothing(t *testing.T) {
	w := begin(t)
	w.place(1)
	dead := w.till("till-1")
	w.must(dead.Begin(w.ctx))
	dead.Close()
	w.bill(w.till("till-1"), 1)
	w.has("payments", 1)
}

func TestATransactionIsNotLeftOpenForEver(t *testing.T) {
	w := begin(t)
	reason, err := w.Reason("POST /v1/clock")
	w.must(err)
	if reason != "" {
		t.Skip(reason)
	}
	w.place(1)
	w.must(w.till("till-1").Begin(w.ctx))
	if found := w.state().Transactions; len(found) != 1 || found[0].State != "Ongoing" {
		t.Fatal(found)
	}
	w.must(w.Advance("80s"))
	if found := w.state().Transactions[0].State; found != "CompleteAbort" {
		t.Fatal(found)
	}
}

func TestACoordinatorThatLoadsIsWaitedFor(t *testing.T) {
	w := begin(t)
	w.place(1)
	rule := w.rule(Rule{"api": "TxnOffsetCommit", "error": "COORDINATOR_LOAD_IN_PROGRESS", "times": 2})
	w.bill(w.till("till-1"), 1)
	w.hits(rule, 2)
	w.has("payments", 1)
}

func TestWhatCannotBeReadDoesNotStopTheTill(t *testing.T) {
	w := begin(t)
	w.place(1)
	for _, value := range []string{"\xff", "{}", "[]"} {
		w.must(w.shop.client.ProduceSync(w.ctx, kgo.StringRecord(value)).FirstErr())
	}
	w.bill(w.till("till-1"), 4)
	w.has("orders.dead", 3)
	w.has("payments", 1)
}

func TestABrokerDiesAndOrdersGoOn(t *testing.T) {
	w := begin(t)
	till := w.till("till-1")
	w.place(5)
	w.bill(till, 5)
	for _, topic := range w.state().Topics {
		if topic.Topic == "orders" {
			leader := topic.Partitions[0].Leader
			w.must(w.Node(leader, "kill"))
			w.Cleanup(func() { w.must(w.Node(leader, "start")) })
		}
	}
	w.place(5)
	w.bill(till, 5)
}

func TestALeaderDiesWithAnOrderInItsHands(t *testing.T) {
	w := begin(t)
	rule := w.rule(Rule{"api": "Produce", "topic": "orders", "node": "kill", "after_work": true, "times": 1})
	w.place(1)
	w.hits(rule, 1)
	w.has("orders", 1)
}

func TestTheControllerDiesAndOrdersGoOn(t *testing.T) {
	w := begin(t)
	till := w.till("till-1")
	w.place(3)
	w.bill(till, 1)
	for _, node := range w.state().Nodes {
		if node.Controller {
			w.must(w.Node(node.Node, "kill"))
		}
	}
	w.must(w.Wait("controller", "any"))
	w.must(w.Ask("POST", "/v1/topics", map[string]any{"topic": "returns", "partitions": 2, "replicas": 2}, nil))
	w.bill(till, 2)
	w.has("payments", 3)
}

func TestOrdersBecomeMorePartitionsInTheMiddle(t *testing.T) {
	w := begin(t)
	till := w.till("till-1")
	w.place(10)
	w.bill(till, 5)
	request := kmsg.NewPtrCreatePartitionsRequest()
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = "orders", 8
	request.Topics = append(request.Topics, topic)
	request.TimeoutMillis = 30000
	_, err := request.RequestWith(w.ctx, w.shop.client)
	w.must(err)
	w.must(w.Wait("topic", "orders", "partitions", "8"))
	w.place(10)
	w.bill(till, 15)
}
