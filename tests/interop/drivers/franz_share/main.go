// franz-go as members of a group that shares a topic (KIP-932): SERVERS TOPIC MEMBERS COUNT.
//
// Each record is released when it comes first if its value is a multiple of ten, and accepted otherwise. Says "ready" when
// all members are there, and at the end how many values were accepted, how many came more than once, and how often one
// was fetched although the broker had said before that its acceptance holds, which is wrong.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const lock = 30 * time.Second // group.share.record.lock.duration.ms

type told struct {
	sync.Mutex
	count      int
	accepted   map[string]bool
	holds      map[string]time.Time
	deliveries map[string]int
	returned   int
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (all *told) done() bool {
	all.Lock()
	defer all.Unlock()
	return len(all.accepted) >= all.count
}

func (all *told) member(servers, topic string, ready func()) {
	var mutex sync.Mutex
	refused := map[int32]bool{}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup("shared"),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			mutex.Lock()
			defer mutex.Unlock()
			for _, one := range results {
				if one.Err != nil {
					refused[one.Partition] = true
				}
			}
		}),
	)
	check(err)
	defer client.Close()
	first := true
	for !all.done() {
		mutex.Lock()
		clear(refused)
		mutex.Unlock()
		until, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := client.PollFetches(until)
		cancel()
		if first {
			first = false
			ready()
		}
		var accepted []*kgo.Record
		fetches.EachRecord(func(one *kgo.Record) {
			value := string(one.Value)
			number, err := strconv.Atoi(value)
			check(err)
			all.Lock()
			defer all.Unlock()
			all.deliveries[value]++
			fetched := one.AcquisitionDeadline().Add(-lock) // it may have waited in the client while its leader died
			if held, known := all.holds[value]; known && fetched.After(held) {
				all.returned++
			}
			if all.deliveries[value] == 1 && number%10 == 0 {
				one.Ack(kgo.AckRelease)
				return
			}
			one.Ack(kgo.AckAccept)
			accepted = append(accepted, one)
		})
		ended, stop := context.WithTimeout(context.Background(), 30*time.Second)
		check(client.FlushAcks(ended))
		stop()
		mutex.Lock()
		all.Lock()
		for _, one := range accepted {
			all.accepted[string(one.Value)] = true
			if !refused[one.Partition] {
				all.holds[string(one.Value)] = time.Now()
			}
		}
		all.Unlock()
		mutex.Unlock()
	}
}

func main() {
	members, err := strconv.Atoi(os.Args[3])
	check(err)
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	all := &told{
		count: count, accepted: map[string]bool{}, holds: map[string]time.Time{}, deliveries: map[string]int{},
	}
	var there, ended sync.WaitGroup
	for range members {
		there.Add(1)
		ended.Add(1)
		go func() {
			defer ended.Done()
			all.member(os.Args[1], os.Args[2], there.Done)
		}()
	}
	there.Wait()
	fmt.Println("ready")
	ended.Wait()
	again := 0
	for _, times := range all.deliveries {
		if times > 1 {
			again++
		}
	}
	fmt.Println("accepted", len(all.accepted), "again", again, "returned", all.returned)
}
