// franz-go as a member of a group that writes down what it is handed, for `anabranch.chaos run --member`.
//
//	go build -C examples/members/franz -o "$PWD/build/members/franz" .
//	python -m anabranch.chaos run --duration 60 --kafka 4.1 --member "franz-go=build/members/franz cooperative"
//
// The group protocol is classic, cooperative or consumer; the other words are added by the run. The sequence of a record
// is what its value says behind the slash. What was written down is committed after the next poll.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var protocols = map[string][]kgo.Opt{
	"classic":     {kgo.Balancers(kgo.RangeBalancer())},
	"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	"consumer":    {kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())},
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	file, err := os.OpenFile(os.Args[5], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	check(err)
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[2], ",")...),
		kgo.ConsumeTopics(os.Args[3]),
		kgo.ConsumerGroup(os.Args[4]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.BlockRebalanceOnPoll(), // nothing is taken away between what is polled and what is written
		kgo.AutoCommitInterval(500 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, protocols[os.Args[1]]...)...)
	check(err)
	until, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	for until.Err() == nil {
		var told strings.Builder
		client.PollFetches(until).EachRecord(func(one *kgo.Record) {
			value := string(one.Value)
			fmt.Fprintf(&told, `{"key":"%s","sequence":%s,"partition":%d,"offset":%d,"member":"%d"}`+"\n",
				one.Key, value[strings.LastIndexByte(value, '/')+1:], one.Partition, one.Offset, os.Getpid())
		})
		_, err := file.WriteString(told.String())
		check(err)
		client.AllowRebalance()
	}
	ended, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	client.CommitUncommittedOffsets(ended) // what fails here is handed out again
	client.CloseAllowingRebalance()
}
