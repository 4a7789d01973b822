// Command failover drives a failover with the client that openapi-generator made of the control plane's OpenAPI.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"failover/control"
)

func main() {
	configuration := control.NewConfiguration()
	if url := os.Getenv("ANABRANCH_CONTROL"); url != "" {
		configuration.Servers = control.ServerConfigurations{{URL: url}}
	}
	if token := os.Getenv("ANABRANCH_TOKEN"); token != "" {
		configuration.AddDefaultHeader("Authorization", "Bearer "+token)
	}
	if err := failover(context.Background(), control.NewAPIClient(configuration)); err != nil {
		log.Fatal(reason(err))
	}
}

// reason is the text of a refusal, or the error itself.
func reason(err error) string {
	var refused *control.GenericOpenAPIError
	if errors.As(err, &refused) {
		if told, ok := refused.Model().(control.Error); ok {
			return told.Error
		}
	}
	return err.Error()
}

func failover(ctx context.Context, client *control.APIClient) error {
	topic := fmt.Sprintf("orders-%d", os.Getpid())
	body := control.NewNewTopicBody(topic)
	body.SetPartitions(1)
	body.SetReplicas(3)
	made, _, err := client.TopicsAPI.CreateTopic(ctx).NewTopicBody(*body).Execute()
	if err != nil {
		return err
	}
	leader := made.Partitions[0].Leader
	if _, _, err = client.ClusterAPI.WaitForState(ctx).Topic(topic).Isr("3+").Timeout(30).Execute(); err != nil {
		return err
	}
	fmt.Printf("node %d leads %s\n", leader, topic)

	if _, _, err = client.NodesAPI.KillNode(ctx, leader).Execute(); err != nil {
		return err
	}
	if _, _, err = client.ClusterAPI.WaitForState(ctx).Topic(topic).Timeout(30).Execute(); err != nil {
		return err
	}
	if err = write(ctx, client, topic); err != nil {
		return err
	}
	if _, _, err = client.NodesAPI.StartNode(ctx, leader).Execute(); err != nil {
		return err
	}
	if err = look(ctx, client, topic); err != nil {
		return err
	}
	_, _, err = client.TopicsAPI.GetTopic(ctx, "nowhere").Execute()
	fmt.Println("refused:", reason(err))
	_, _, err = client.TopicsAPI.DeleteTopic(ctx, topic).Execute()
	return err
}

func write(ctx context.Context, client *control.APIClient, topic string) error {
	text, bytes, key := "created", control.NewBinaryContent("/wAB"), "alice"
	first, second := control.NewNewRecord(), control.NewNewRecord()
	first.SetKey(control.RecordContent{String: &key})
	first.SetValue(control.RecordContent{String: &text})
	second.SetKey(control.RecordContent{String: &key})
	second.SetValue(control.RecordContent{BinaryContent: bytes})
	records := control.NewNewRecordsBody([]control.NewRecord{*first, *second})
	stored, _, err := client.TopicsAPI.WriteRecords(ctx, topic).NewRecordsBody(*records).Execute()
	if err == nil && len(stored) != 2 {
		err = fmt.Errorf("%d records are stored", len(stored))
	}
	return err
}

func look(ctx context.Context, client *control.APIClient, topic string) error {
	read, _, err := client.TopicsAPI.ReadRecords(ctx, topic).Partition(0).Execute()
	if err != nil {
		return err
	}
	for _, one := range read.Records {
		value := one.Value.Get()
		switch {
		case value == nil:
			fmt.Printf("%d: null\n", one.Offset)
		case value.String != nil:
			fmt.Printf("%d: %s\n", one.Offset, *value.String)
		default:
			fmt.Printf("%d: base64 %s\n", one.Offset, value.BinaryContent.Base64)
		}
	}
	state, _, err := client.ClusterAPI.GetState(ctx).Execute()
	if err != nil {
		return err
	}
	if _, _, err = client.DashboardAPI.GetDashboardRows(ctx).Execute(); err != nil {
		return err
	}
	events, _, err := client.ClusterAPI.GetEvents(ctx).After(0).Execute()
	if err != nil {
		return err
	}
	killed := false
	for _, one := range events {
		killed = killed || one.Kind == "node killed"
	}
	fmt.Printf("%d nodes, node killed: %t\n", len(state.Nodes), killed)
	return nil
}
